#include "data/records/text_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <numeric>

#include "base/parallel.h"
#include "data/dataset/first_target.h"
#include "data/errors.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using Ids = std::vector<int32_t>;

TEST(TextFiles, EveryTokenButTheFirstIsATargetOnce) {
  for (const int64_t length : {1, 2, 3, 7, 10, 11, 12, 100}) {
    for (const size_t n : {2u, 3u, 10u, 11u, 12u, 21u}) {
      Ids document(n);
      std::iota(document.begin(), document.end(), 0);
      Dataset data;
      add_document(data, document, length);
      Ids targets;
      for (int64_t i = 0; i < data.size(); ++i) {
        const auto sample = data.tokens_of(i);
        ASSERT_LE(std::ssize(sample), length + 1);
        EXPECT_EQ(first_target(data, i), 0);
        targets.insert(targets.end(), sample.begin() + 1, sample.end());
      }
      EXPECT_EQ(targets, Ids(document.begin() + 1, document.end())) << n << " in " << length;
    }
  }
}

TEST(TextFiles, AFileIsADocumentBetweenBosAndEos) {
  const TempFolder folder;
  const Dataset data = load_text_files(folder.write("a.md", "h\u00e9"), ByteTokenizer(), 100);
  ASSERT_EQ(data.size(), 1);
  const auto tokens = data.tokens_of(0);
  EXPECT_EQ(Ids(tokens.begin(), tokens.end()), (Ids{256, 'h', 0xC3, 0xA9, 257}));
}

TEST(TextFiles, AFolderIsItsTxtFilesByName) {
  const TempFolder folder;
  folder.write("b.txt", "2");
  folder.write("a.txt",
               "\xEF\xBB\xBF"
               "1");  // a byte order mark is not text
  folder.write("c.txt", "");
  folder.write("notes.md", "x");
  std::filesystem::create_directory(folder.path() / "deeper.txt");
  const Dataset data = load_text_files(folder.path(), ByteTokenizer(), 8);
  ASSERT_EQ(data.size(), 2);
  EXPECT_EQ(data.tokens_of(0)[1], '1');
  EXPECT_EQ(data.tokens_of(1)[1], '2');
}

std::string all_text(const Dataset& data) {
  std::string text;
  for (int64_t i = 0; i < data.size(); ++i)
    for (const int32_t id : data.tokens_of(i))
      text += id == ByteTokenizer::kBos   ? '<'
              : id == ByteTokenizer::kEos ? '>'
                                          : static_cast<char>(id);
  return text;
}

TEST(TextFiles, FoldersBelowAreReadInOrder) {
  namespace fs = std::filesystem;
  const TempFolder folder;
  for (const char* below : {"b/deep", "a", ".hidden"}) fs::create_directories(folder / below);
  folder.write("z.txt", "5");
  folder.write("b/deep/x.txt", "3");
  folder.write("b/y.TXT", "4");
  folder.write("a/k.jsonl", "{\"text\": \"1\"}\n{\"text\": \"2\"}\n");
  folder.write(".hidden/no.txt", "no");
  // Links that lead up, or to a folder that is read already, add nothing and end.
  fs::create_directory_symlink(folder.path(), folder / "b/deep/up");
  fs::create_directory_symlink("b", folder / "zz");
  EXPECT_EQ(all_text(load_text_files(folder.path(), ByteTokenizer(), 8)), "<1><2><3><4><5>");
}

TEST(TextFiles, FilesThatAreNotReadAreTold) {
  const TempFolder folder;
  for (const char* name : {"a.txt", "b.csv", "c.json", "d.png", "e.md"}) folder.write(name, "x");
  std::string others;
  for (const auto& path : text_files(folder.path()).passed_over)
    others += path.filename().string() + " ";
  EXPECT_EQ(others, "b.csv c.json e.md ");
}

// {"text": …} is not learned as JSON, but as the text that it holds.
TEST(TextFiles, RecordsWithATextAreDocuments) {
  const TempFolder folder;
  const std::string lines =
      "{\"text\": \"one\\n\", \"id\": 1}\n\n{\"id\": 2, \"text\": \"two\"}\n{\"text\": \"\"}";
  const Dataset data = load_text_files(folder.write("a.jsonl", lines), ByteTokenizer(), 100);
  EXPECT_EQ(all_text(data), "<one\n><two>");
  EXPECT_TRUE(data.where_of(1).ends_with("a.jsonl:3")) << data.where_of(1);
  for (const char* list : {"[{\"text\": \"x\"}, {\"text\": \"y\"}]",
                           "{\"data\": [{\"text\": \"x\"}, {\"text\": \"y\"}]}"})
    EXPECT_EQ(all_text(load_text_files(folder.write("a.json", list), ByteTokenizer(), 9)),
              "<x><y>");
  EXPECT_EQ(all_text(load_text_files(folder.write("b.jsonl", "{\"body\": \"x\", \"text\": 5}"),
                                     ByteTokenizer(), 9, {.text = "body"})),
            "<x>");
  // Whole documents, in pieces: nothing is cut off.
  const Dataset pieces =
      load_text_files(folder.write("c.jsonl", "{\"text\": \"abcdef\"}"), ByteTokenizer(), 3);
  EXPECT_EQ(all_text(pieces), "<abccdeff>");
  EXPECT_TRUE(pieces.where_of(1).ends_with("c.jsonl:1")) << pieces.where_of(1);
}

TEST(TextFiles, RecordsWithoutATextAreRefused) {
  const TempFolder folder;
  const auto load = [&](const char* name, std::string_view text) {
    load_text_files(folder.write(name, text), ByteTokenizer(), 8);
  };
  expect_error(
      Fault::file,
      {"a.jsonl:2: expected a document with the field \"text\", found \"instruction, output\"",
       "--data.columns.text COLUMN", "--data JSON --data.json_path"},
      [&] { load("a.jsonl", "{\"text\": \"x\"}\n{\"instruction\": \"x\", \"output\": \"y\"}\n"); });
  expect_error(Fault::file, {"a.json:1:1: expected a JSON list"}, [&] { load("a.json", "words"); });
  expect_error(Fault::file, {"a.jsonl:1: \"text\" must be text, found 5"},
               [&] { load("a.jsonl", "{\"text\": 5}"); });
}

TEST(TextFiles, WhatIsNoTextIsRefusedWithWhatToDo) {
  using namespace std::string_literals;
  const TempFolder folder;
  const auto load = [&](const char* name, std::string_view text) {
    load_text_files(folder.write(name, text), ByteTokenizer(), 8);
  };
  for (const char* name : {"a.csv", "a.tsv", "a.CSV"})
    expect_error(Fault::file,
                 {"expected text, found a table", "--data JSON --data.json_path", "to_json"},
                 [&] { load(name, "text\nhello\n"); });
  expect_error(Fault::file, {"a.bin: expected text, found a Parquet file; convert it: python3"},
               [&] { load("a.bin", "PAR1"); });
  expect_error(Fault::file, {"UTF-16 without a byte order mark", "iconv -f UTF-16LE"},
               [&] { load("a.txt", "h\0e\0l\0l\0o\0"s); });
  expect_error(Fault::file, {"a.txt: expected text, found a zero byte at offset 10: a binary file"},
               [&] { load("a.txt", "0123456789\0abcdefghijklmnopqrstuvwxyz"s); });
  std::filesystem::create_directory(folder / "set");
  folder.write("set/data-00000-of-00001.arrow", "");
  folder.write("set/state.json", "{}");
  expect_error(Fault::file, {"set: no .txt and no .jsonl files", "load_from_disk('", "set.jsonl"},
               [&] { load_text_files(folder / "set", ByteTokenizer(), 8); });
}

TEST(TextFiles, SamplesNameTheirFileAndProgressIsTold) {
  const TempFolder folder;
  for (int i = 0; i < 20; ++i) folder.write("f" + std::to_string(10 + i) + ".txt", "text");
  std::atomic<int64_t> most = 0, calls = 0;
  const Dataset data =
      load_text_files(folder.path(), ByteTokenizer(), 8, {}, [&](int64_t done, int64_t total) {
        EXPECT_EQ(total, 80) << "bytes";
        EXPECT_LE(done, 80);
        int64_t before = most;
        while (done > before && !most.compare_exchange_weak(before, done)) {
        }
        ++calls;
      });
  EXPECT_EQ(most, 80);
  // After each group of files that threads take at once; between them as the first thread gets on.
  EXPECT_GE(calls, (20 + num_threads() - 1) / num_threads());
  ASSERT_EQ(data.size(), 20);
  EXPECT_EQ(data.where_of(13), (folder.path() / "f23.txt").string() + " (sample 13)");
}

TEST(TextFiles, NoDocumentRunsIntoAnother) {
  const TempFolder folder;
  folder.write("a.txt", "aaaaa");
  folder.write("b.txt", "bbbbb");
  const Dataset data = load_text_files(folder.path(), ByteTokenizer(), 4);
  ASSERT_EQ(data.size(), 4) << "seven tokens each: five and three";
  for (int64_t i = 0; i < data.size(); ++i)
    for (const int32_t id : data.tokens_of(i)) EXPECT_NE(id, i < 2 ? 'b' : 'a');
}

TEST(TextFiles, SaysWhatIsMissing) {
  const TempFolder folder;
  const ByteTokenizer tokenizer;
  const auto load = [&](const std::filesystem::path& path) { load_text_files(path, tokenizer, 8); };
  expect_error(Fault::file, {"nowhere: no such file or folder", "folder of .txt or .jsonl files"},
               [&] { load(folder.path() / "nowhere"); });
  expect_error(Fault::file, {folder.path().string() + ": no .txt and no .jsonl files"},
               [&] { load(folder.path()); });
  expect_error(Fault::file, {": expected a file, found a folder"},
               [&] { read_utf8_file(folder.path()); });
  folder.write("a.txt", "");
  expect_error(Fault::file, {"contains no text"}, [&] { load(folder.path()); });
  expect_error(Fault::file, {"/dev/null: expected a text file or a folder"},
               [&] { load("/dev/null"); });
}

TEST(TextFiles, LeavesNoTextOutInSilence) {
  const TempFolder folder;
  folder.write("a.txt", "aa");
  folder.write("B.TXT", "bb");
  EXPECT_EQ(load_text_files(folder.path(), ByteTokenizer(), 8).size(), 2);
  // A pipe would never end, but it has the name of a text.
  ASSERT_EQ(mkfifo((folder.path() / "pipe.txt").c_str(), 0600), 0);
  expect_error(Fault::file, {"pipe.txt: expected a file, found a pipe"},
               [&] { load_text_files(folder.path(), ByteTokenizer(), 8); });
  std::filesystem::remove(folder.path() / "pipe.txt");
  for (const char* target : {"nowhere", "c.txt"}) {
    std::filesystem::remove(folder.path() / "c.txt");
    std::filesystem::create_symlink(folder.path() / target, folder.path() / "c.txt");
    expect_error(Fault::file, {"c.txt: cannot open"},
                 [&] { load_text_files(folder.path(), ByteTokenizer(), 8); });
  }
}

TEST(TextFiles, ReadsLongFilesWhole) {
  const TempFolder folder;
  std::string text;
  while (text.size() < 200'000) text += std::to_string(text.size()) + '\n';
  EXPECT_EQ(read_utf8_file(folder.write("long.txt", text)), text);
}

TEST(TextFiles, NamesTheLineThatIsNotUtf8) {
  const TempFolder folder;
  const auto file = folder.write("bad.txt",
                                 "one\ntwo\nthr\xE9"
                                 "e\n");
  expect_error(Fault::file, {file.string() + ":3: not UTF-8: byte 0xe9 at offset 11", "iconv"},
               [&] { read_utf8_file(file); });
}

TEST(TextFiles, RefusesALengthOfZero) {
  Dataset data;
  expect_error(Fault::usage, {"max_seq_length", "0"}, [&] { add_document(data, Ids{1, 2}, 0); });
}

}  // namespace
}  // namespace capstan
