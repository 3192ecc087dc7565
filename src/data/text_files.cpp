#include "data/text_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/parallel.h"
#include "base/utf8.h"
#include "data/first_error.h"

namespace capstan {
namespace fs = std::filesystem;

bool is_text_name(const fs::path& path) {
  const fs::path ending = path.extension();
  return ending == ".txt" || ending == ".TXT";
}

namespace {

std::vector<fs::path> text_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  require(!error, Fault::file, "{}: cannot list the folder: {}", folder.string(), error.message());
  for (const fs::directory_entry& entry : entries) {
    if (!is_text_name(entry.path())) continue;
    // A link that leads nowhere is one of them: who reads it tells.
    const fs::file_status status = fs::status(entry.path(), error);
    if (fs::is_regular_file(status) || (!fs::exists(status) && entry.is_symlink(error)))
      files.push_back(entry);
  }
  // The order of a folder is the file system's whim; sample numbers must not depend on it.
  std::sort(files.begin(), files.end());
  require(!files.empty(), Fault::file,
          "{}: no .txt files in this folder. Name a folder that holds them (not in folders below "
          "it), or one file",
          folder.string());
  return files;
}

}  // namespace

std::vector<fs::path> text_files(const fs::path& path) {
  std::error_code error;
  require(fs::exists(path, error), Fault::file,
          "{}: no such file or folder. Name a text file, or a folder of .txt files", path.string());
  if (fs::is_directory(path, error)) return text_files_in(path);
  require(fs::is_regular_file(path, error), Fault::file,
          "{}: expected a text file or a folder of .txt files, found something else (a pipe can be "
          "read once only)",
          path.string());
  return {path};
}

std::string read_utf8_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  require(in.is_open(), Fault::file, "{}: cannot open: {}", file.string(), std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> piece;
  while (in.read(piece.data(), piece.size()) || in.gcount() > 0)
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
  require(!in.bad(), Fault::file, "{}: cannot read: {}", file.string(), std::strerror(errno));
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

Dataset load_text_files(const fs::path& path, const Tokenizer& tokenizer, int64_t max_seq_length,
                        const std::function<void(int64_t, int64_t)>& progress) {
  const std::vector<fs::path> files = text_files(path);
  const auto total = static_cast<int64_t>(files.size());
  const int64_t at_once = num_threads();
  std::vector<std::vector<int32_t>> documents(static_cast<size_t>(at_once));
  Dataset dataset;
  for (int64_t first = 0; first < total; first += at_once) {
    const int64_t n = std::min(at_once, total - first);
    FirstError error;
    parallel_tasks(n, [&](int64_t i, int) {
      error.guard(i, [&] {
        const std::string text = read_utf8_file(files[static_cast<size_t>(first + i)]);
        auto& document = documents[static_cast<size_t>(i)];
        document = text.empty() ? std::vector<int32_t>() : encode_document(tokenizer, text);
      });
    });
    error.rethrow();
    for (int64_t i = 0; i < n; ++i) {
      const int32_t file = dataset.add_file(files[static_cast<size_t>(first + i)].string());
      add_document(dataset, documents[static_cast<size_t>(i)], max_seq_length, {.file = file});
    }
    if (progress) progress(first + n, total);
  }
  require(dataset.size() > 0, Fault::file, "{}: holds no text: every file is empty", path.string());
  return dataset;
}

}  // namespace capstan
