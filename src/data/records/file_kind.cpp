#include "data/records/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/shell_words.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr size_t kLooksAt = 8192;  // bytes

fs::path as_jsonl(fs::path path) {
  return path.replace_extension(".jsonl");
}

// A command to copy.
std::string python(const std::string& code) {
  return "python3 -c " + in_shell(code);
}

std::string by_pandas(std::string_view reader, const fs::path& file) {
  return python(
      fmt::format("import pandas; pandas.{}({}).to_json({}, orient='records', lines=True)", reader,
                  in_python(file.string()), in_python(as_jsonl(file).string())));
}

std::string by_datasets(std::string_view call, const fs::path& from) {
  return python(fmt::format("from datasets import *; {}.to_json({})", call,
                            in_python(as_jsonl(from).string())));
}

std::string columnar(std::string_view begin, const fs::path& file) {
  if (begin.starts_with("PAR1"))
    return fmt::format("a Parquet file; convert it: {}", by_pandas("read_parquet", file));
  if (begin.starts_with("ARROW1") || begin.starts_with("FEA1"))
    return fmt::format("an Arrow file; convert it: {}", by_pandas("read_feather", file));
  // The marker before each message in Arrow's stream format, which datasets are stored in.
  if (begin.starts_with("\xff\xff\xff\xff"))
    return fmt::format(
        "an Arrow file; convert it: {}",
        by_datasets(fmt::format("Dataset.from_file({})", in_python(file.string())), file));
  return "";
}

std::string_view packed(std::string_view begin) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"\x1f\x8b"sv, "a gzip file; decompress it"},
      {"PK\x03\x04"sv, "a ZIP file; extract it"},
      {"\x28\xb5\x2f\xfd"sv, "a zstd file; decompress it"},
      {"\xfd\x37zXZ\0"sv, "an xz file; decompress it"},
      {"BZh"sv, "a bzip2 file; decompress it"},
      {"%PDF-"sv, "a PDF file; extract its text (pdftotext)"},
      {"SQLite format 3\0"sv, "an SQLite database; export its table as CSV"},
      {"\x93NUMPY"sv, "a NumPy array, not text"}};
  for (const auto& [mark, kind] : kKinds)
    if (begin.starts_with(mark)) return kind;
  return "";
}

// Detects UTF-16 and UTF-32 by their byte order mark, or by the zero bytes of ASCII in UTF-16.
std::string_view wide_text(std::string_view begin) {
  if (begin.starts_with("\xff\xfe\0\0"sv) || begin.starts_with("\0\0\xfe\xff"sv))
    return "UTF-32; convert the file (iconv -f UTF-32 -t UTF-8)";
  if (begin.starts_with("\xff\xfe") || begin.starts_with("\xfe\xff"))
    return "UTF-16; convert the file (iconv -f UTF-16 -t UTF-8)";
  std::array<size_t, 2> zeros{};  // at even and odd offsets
  const size_t pairs = begin.size() / 2;
  for (size_t i = 0; i < 2 * pairs; ++i) zeros[i % 2] += begin[i] == 0;
  // Most of a western text, and at least the spaces and quotes of any other.
  const auto is_wide = [&](size_t high, size_t low) {
    const bool most = zeros[high] > 0 && 2 * zeros[high] >= pairs;
    return zeros[low] <= pairs / 64 && (most || (zeros[high] >= 4 && 16 * zeros[high] >= pairs));
  };
  if (is_wide(1, 0))
    return "UTF-16 without a byte order mark; convert the file (iconv -f UTF-16LE -t UTF-8)";
  if (is_wide(0, 1))
    return "UTF-16 without a byte order mark; convert the file (iconv -f UTF-16BE -t UTF-8)";
  return "";
}

bool has_file(const fs::path& folder, std::string_view ending) {
  std::error_code error;
  for (auto i = fs::recursive_directory_iterator(folder, error);
       !error && i != fs::recursive_directory_iterator(); i.increment(error))
    if (ending_of(i->path()) == ending) return true;
  return false;
}

}  // namespace

std::string beginning_of(const FileReader& file) {
  std::string begin(std::min(kLooksAt, static_cast<size_t>(file.size())), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return begin;
}

std::string foreign_kind(std::string_view begin, const fs::path& file) {
  begin = begin.substr(0, kLooksAt);
  if (std::string kind = columnar(begin, file); !kind.empty()) return kind;
  for (const std::string_view kind : {packed(begin), wide_text(begin)})
    if (!kind.empty()) return std::string(kind);
  if (begin.find('\0') != std::string_view::npos)
    return fmt::format("a zero byte at offset {}: a binary file, not text", begin.find('\0'));
  return "";
}

std::string ending_of(const fs::path& file) {
  std::string ending = file.extension().string();
  for (char& c : ending)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return ending;
}

std::optional<char> table_delimiter(const fs::path& file) {
  const std::string ending = ending_of(file);
  if (ending == ".csv") return ',';
  if (ending == ".tsv") return '\t';
  return std::nullopt;
}

std::string conversion_of_folder(const fs::path& folder) {
  const fs::path named = (folder / "").parent_path();  // without a trailing slash
  std::error_code error;
  if (fs::exists(folder / "state.json", error) && has_file(folder, ".arrow"))
    return by_datasets(fmt::format("load_from_disk({})", in_python(named.string())), named);
  if (fs::exists(folder / "dataset_dict.json", error))
    return by_datasets(fmt::format("load_from_disk({})['train']", in_python(named.string())),
                       named);
  for (const char* kind : {"parquet", "arrow"})
    if (has_file(folder, fmt::format(".{}", kind)))
      return by_datasets(fmt::format("load_dataset({}, split='train')", in_python(named.string())),
                         named);
  return "";
}

}  // namespace capstan
