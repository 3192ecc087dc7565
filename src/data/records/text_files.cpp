#include "data/records/text_files.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <span>

#include "base/error.h"
#include "base/first_error.h"
#include "base/parallel.h"
#include "base/utf8.h"
#include "data/records/file_kind.h"
#include "data/records/record_file.h"
#include "data/tokenizer/long_encoder.h"

namespace capstan {
namespace fs = std::filesystem;

bool is_text_name(const fs::path& path) {
  return ending_of(path) == ".txt";
}

bool is_document_name(const fs::path& path) {
  const std::string ending = ending_of(path);
  return ending == ".jsonl" || ending == ".ndjson" || ending == ".json";
}

namespace {

// File types that a user may have expected to be read.
bool looks_like_data(const fs::path& path) {
  constexpr std::string_view kEndings[] = {".json",  ".csv", ".tsv", ".md",  ".parquet",
                                           ".arrow", ".gz",  ".zst", ".zip", ".text"};
  const std::string ending = ending_of(path);
  return std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings);
}

// The files of a folder and its subfolders.
class FolderReader {
 public:
  void read(const fs::path& folder) {
    std::error_code error;
    // By canonical path, so that a link to a parent folder does not recurse.
    const fs::path name = fs::canonical(folder, error);
    if (!error && !seen_.insert(name).second) return;
    std::vector<fs::path> entries;
    if (!error)
      for (fs::directory_iterator i(folder, error); !error && i != fs::directory_iterator();
           i.increment(error))
        entries.push_back(i->path());
    require(!error, Fault::file, "{}: cannot list the folder: {}", folder.string(),
            error.message());
    // The file system lists a folder in any order; sample numbers must not depend on it.
    std::sort(entries.begin(), entries.end());
    for (const fs::path& entry : entries) take(entry);
  }

  TextSources found() && {
    std::sort(sources_.files.begin(), sources_.files.end());
    return std::move(sources_);
  }

 private:
  void take(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_directory(status)) {
      if (!path.filename().string().starts_with('.')) read(path);
      return;
    }
    // Includes pipes and broken links: reading them reports the error.
    if (is_text_name(path) || (is_document_name(path) && ending_of(path) != ".json"))
      sources_.files.push_back(path);
    else if (looks_like_data(path))
      sources_.passed_over.push_back(path);
  }

  std::set<fs::path> seen_;
  TextSources sources_;
};

TextSources text_files_in(const fs::path& folder) {
  FolderReader reader;
  reader.read(folder);
  TextSources sources = std::move(reader).found();
  if (!sources.files.empty()) return sources;
  const std::string conversion = conversion_of_folder(folder);
  fail(Fault::file, "{}: no .txt and no .jsonl files in this folder{}", folder.string(),
       !conversion.empty() ? fmt::format(". Convert the dataset in it: {}", conversion)
       : sources.passed_over.empty()
           ? ". Name a folder that contains them, or a single file"
           : fmt::format(", but {}. Name a file to read it", sources.passed_over[0].string()));
}

void refuse_table(const fs::path& file) {
  require(
      !table_delimiter(file), Fault::file,
      "{}: expected text, found a table. To train on one column, convert it to documents: python3 "
      "-c \"import pandas; pandas.read_csv('FILE')[['COLUMN']].rename(columns={{'COLUMN': "
      "'text'}}).to_json('FILE.jsonl', orient='records', lines=True)\"; to train on its rows as "
      "instructions: --data JSON --data.json_path FILE",
      file.string());
}

}  // namespace

TextSources text_files(const fs::path& path) {
  std::error_code error;
  require(fs::exists(path, error), Fault::file,
          "{}: no such file or folder. Name a text file, or a folder of .txt or .jsonl files",
          path.string());
  if (fs::is_directory(path, error)) return text_files_in(path);
  require(fs::is_regular_file(path, error), Fault::file,
          "{}: expected a text file or a folder of .txt files, found something else (a pipe can "
          "only be read once)",
          path.string());
  refuse_table(path);
  return {{path}, {}};
}

std::string read_utf8_file(const fs::path& file) {
  const FileReader in(file);
  // From the beginning alone: a file of another kind may be huge.
  const std::string kind = foreign_kind(beginning_of(in), file);
  require(kind.empty(), Fault::file, "{}: expected text, found {}", file.string(), kind);
  std::string text(static_cast<size_t>(in.size()), '\0');
  in.read(0, std::as_writable_bytes(std::span(text)));
  if (const auto bad = invalid_utf8(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<long>(*bad), '\n');
    fail(
        Fault::file,
        "{}:{}: not UTF-8: byte 0x{:02x} at offset {}. Convert the file (iconv -t UTF-8) or remove "
        "it",
        file.string(), line, static_cast<unsigned char>(text[*bad]), *bad);
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  return text;
}

void add_document(Dataset& dataset, std::span<const int32_t> tokens, int64_t max_seq_length,
                  SampleOrigin origin) {
  require(max_seq_length > 0, Fault::usage, "max_seq_length must be 1 or more, not {}",
          max_seq_length);
  const auto block = static_cast<size_t>(max_seq_length);
  for (size_t begin = 0; begin + 1 < tokens.size(); begin += block) {
    const auto piece = tokens.subspan(begin, std::min(block + 1, tokens.size() - begin));
    const TargetSpan all{0, static_cast<int32_t>(piece.size())};
    dataset.add(piece, {&all, 1}, origin);
  }
}

namespace {

class TextLoader {
 public:
  // `encoded` gets the bytes of each part of a text, on the thread that encodes it; it may throw.
  TextLoader(const Tokenizer& tokenizer, int64_t max_seq_length,
             std::function<void(int64_t)> encoded)
      : tokenizer_(tokenizer), max_seq_length_(max_seq_length), encoded_(std::move(encoded)) {}

  // Each file is a document.
  void add_files(std::span<const fs::path> files) {
    add(
        std::ssize(files), [&](int64_t i) { return read_utf8_file(files[static_cast<size_t>(i)]); },
        [&](int64_t i) {
          return SampleOrigin{.file = data_.add_file(files[static_cast<size_t>(i)].string())};
        });
  }

  // Each record is one.
  void add_records(const fs::path& path, const RecordFields& fields) {
    constexpr int64_t kAtOnce = 512;
    const RecordFile file(path, fields);
    const int32_t name = data_.add_file(path.string());
    for (int64_t first = 0; first < file.size(); first += kAtOnce)
      add(
          std::min(kAtOnce, file.size() - first),
          [&](int64_t i) { return file.document(first + i); },
          [&](int64_t i) {
            return SampleOrigin{
                .file = name, .flags = SampleOrigin::document, .line = file.line_of(first + i)};
          });
  }

  Dataset take() { return std::move(data_); }

 private:
  // Tokenizes so many documents in parallel.
  template <class Read, class Origin>
  void add(int64_t n, const Read& read, const Origin& origin) {
    std::vector<std::vector<int32_t>> documents(static_cast<size_t>(n));
    FirstError error;
    parallel_tasks(n, [&](int64_t i, int) {
      error.guard(i, [&] {
        const std::string text = read(i);
        if (!text.empty())
          documents[static_cast<size_t>(i)] = encode_document(tokenizer_, text, encoded_);
      });
    });
    error.rethrow();
    for (int64_t i = 0; i < n; ++i)
      add_document(data_, documents[static_cast<size_t>(i)], max_seq_length_, origin(i));
  }

  const Tokenizer& tokenizer_;
  int64_t max_seq_length_;
  std::function<void(int64_t)> encoded_;
  Dataset data_;
};

int64_t bytes_of(std::span<const fs::path> files) {
  int64_t bytes = 0;
  std::error_code error;
  for (const fs::path& file : files) {
    const auto size = fs::file_size(file, error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

}  // namespace

Dataset load_text_files(const fs::path& path, const Tokenizer& tokenizer, int64_t max_seq_length,
                        const RecordFields& fields,
                        const std::function<void(int64_t, int64_t)>& progress) {
  const std::vector<fs::path> files = text_files(path).files;
  // The bytes of files that are done, and of what is done of the next, which normalization may have
  // made longer.
  int64_t before = 0, of_these = 0;
  std::atomic<int64_t> done = 0;
  const int64_t total = bytes_of(files);
  std::function<void(int64_t)> encoded;
  if (progress)
    encoded = [&](int64_t bytes) {
      const int64_t of_these_done = std::min(done += bytes, of_these);
      if (omp_get_thread_num() == 0) progress(before + of_these_done, total);
    };
  TextLoader loader(tokenizer, max_seq_length, encoded);
  for (size_t first = 0, n = 0; first < files.size(); first += n) {
    // As many texts at once as there are threads; a record file has many records.
    for (n = 0; first + n < files.size() && n < static_cast<size_t>(num_threads()); ++n)
      if (is_document_name(files[first + n])) break;
    const bool records = n == 0;
    if (records) n = 1;
    const auto these = std::span(files).subspan(first, n);
    of_these = bytes_of(these);
    if (records)
      loader.add_records(these[0], fields);
    else
      loader.add_files(these);
    before += of_these;
    done = 0;
    if (progress) progress(before, total);
  }
  Dataset dataset = loader.take();
  require(dataset.size() > 0, Fault::file, "{}: contains no text: every file is empty",
          path.string());
  return dataset;
}

}  // namespace capstan
