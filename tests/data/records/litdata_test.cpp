#include "data/records/litdata.h"

#include <gtest/gtest.h>

#include "data/data_source.h"
#include "data/errors.h"
#include "data/text_sets.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// A chunk as LitData 0.2.59 writes it.
template <class T>
std::string chunk(const std::vector<std::vector<T>>& items) {
  std::vector<uint32_t> header = {static_cast<uint32_t>(items.size())};
  auto at = static_cast<uint32_t>(4 * (items.size() + 2));
  std::string data;
  header.push_back(at);
  for (const auto& item : items) {
    data += bytes_of(item);
    header.push_back(at += static_cast<uint32_t>(item.size() * sizeof(T)));
  }
  return bytes_of(header) + data;
}

std::string index(const std::string& format, const std::string& compression = "null") {
  return R"({"chunks": [{"chunk_bytes": 1, "chunk_size": 2, "dim": 9, "filename": "chunk-0-0.bin"},
{"chunk_bytes": 1, "chunk_size": 1, "dim": 3, "filename": "chunk-0-1.bin"}],
"config": {"chunk_bytes": 1000, "chunk_size": null, "compression": )" +
         compression + R"(, "data_format": [")" + format +
         R"("], "encryption": null, "item_loader": "TokensLoader"}, "updated_at": "1.0"})";
}

class LitData : public testing::Test {
 protected:
  template <class T>
  void write_set(const std::string& format) {
    folder.write("index.json", index(format));
    folder.write("chunk-0-0.bin", chunk<T>({{256, 1, 2, 3, 4, 257}, {256, 5, 257}}));
    folder.write("chunk-0-1.bin", chunk<T>({{256, 7, 257}}));
  }
  Dataset load() const { return load_litdata(folder.path(), tokenizer, 4); }

  TempFolder folder;
  ByteTokenizer tokenizer;
};

TEST_F(LitData, ItemsAreDocumentsInAnyTypeOfTokens) {
  for (const int number : {15, 16, 17, 18, 20}) {
    const std::string format = fmt::format("no_header_tensor:{}", number);
    if (number < 17) write_set<int32_t>(format);
    if (number == 17 || number == 18) write_set<int64_t>(format);
    if (number == 20) write_set<uint16_t>(format);
    ASSERT_TRUE(is_litdata(folder.path()));
    const Dataset data = load();
    ASSERT_EQ(data.size(), 4) << "the first document is cut in two";
    const auto tokens = [&](int64_t i) {
      return std::vector<int32_t>(data.tokens_of(i).begin(), data.tokens_of(i).end());
    };
    EXPECT_EQ(tokens(0), (std::vector<int32_t>{256, 1, 2, 3, 4}));
    EXPECT_EQ(tokens(1), (std::vector<int32_t>{4, 257}));
    EXPECT_EQ(tokens(3), (std::vector<int32_t>{256, 7, 257}));
    EXPECT_NE(data.where_of(3).find("chunk-0-1.bin"), std::string::npos);
  }
}

TEST_F(LitData, RefusesWhatIsNoRowOfTokens) {
  write_set<int32_t>("no_header_tensor:16");
  folder.write("index.json", index("jpeg"));
  expect_error(Fault::file, {"index.json", "\"jpeg\"", "--data TextFiles"}, [&] { load(); });
  folder.write("index.json", index("no_header_tensor:16", "\"zstd\""));
  expect_error(Fault::file, {"index.json", "compression \"zstd\""}, [&] { load(); });
  for (const char* other : {"[]", "{}", R"({"chunks": 3, "config": {}})"}) {
    folder.write("index.json", other);
    expect_error(Fault::file, {"expected LitData's index"}, [&] { load(); });
  }
  folder.write(
      "index.json",
      R"({"chunks": [{"filename": "../x"}], "config": {"data_format": ["no_header_tensor:16"]}})");
  expect_error(Fault::file, {"filename of a chunk in this folder"}, [&] { load(); });
}

TEST_F(LitData, RefusesADamagedChunk) {
  write_set<int32_t>("no_header_tensor:16");
  const std::string good = chunk<int32_t>({{256, 7, 257}});
  for (size_t n = 0; n < good.size(); ++n) {
    folder.write("chunk-0-1.bin", good.substr(0, n));
    expect_error(Fault::file, {"chunk-0-1.bin", "truncated or damaged"}, [&] { load(); });
  }
  fs::remove(folder / "chunk-0-1.bin");
  expect_error(Fault::file, {"chunk-0-1.bin: cannot read"}, [&] { load(); });
}

TEST_F(LitData, RefusesTokensOfAnotherTokenizer) {
  write_set<int32_t>("no_header_tensor:16");
  folder.write("chunk-0-1.bin", chunk<int32_t>({{256, 31999, 257}}));
  expect_error(Fault::file, {"has the token 31999, but the tokenizer has", "--tokenizer_dir"},
               [&] { load(); });
}

}  // namespace
}  // namespace capstan
