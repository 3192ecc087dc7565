#include "data/litdata.h"

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "data/text_files.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kLargestIndex = 64 << 20;
static_assert(std::endian::native == std::endian::little, "chunks are read as they lie");

// Bytes of a token, by LitData's numbers for PyTorch's types.
struct TokenType {
  int number;
  size_t bytes;
};
constexpr TokenType kTypes[] = {
    {15, 4}, {16, 4}, {17, 8}, {18, 8}, {20, 2}};  // int32, int64, uint16

constexpr const char* kAnew =
    "Write the set anew with LitGPT, or give its texts: --data TextFiles --data.train_data_path "
    "PATH";

struct Index {
  std::vector<fs::path> chunks;
  size_t bytes = 0;  // of a token
};

std::string text_in(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : "";
}

size_t token_bytes(const json& config, const std::string& where) {
  const json format = config.value("data_format", json());
  const bool one = format.is_array() && format.size() == 1 && format[0].is_string();
  const std::string name = one ? format[0].get<std::string>() : "";
  for (const TokenType& type : kTypes)
    if (name == fmt::format("no_header_tensor:{}", type.number)) return type.bytes;
  fail(Fault::file,
       "{}: expected chunks of tokens (a data_format of no_header_tensor in int32, int64 or "
       "uint16), found {}. {}",
       where, one ? in_quotes(name) : shown(format), kAnew);
}

Index read_index(const fs::path& folder) {
  const fs::path path = folder / "index.json";
  const std::string where = path.string();
  const json root = parse_json(read_text(path, kLargestIndex), where);
  const json config = root.is_object() ? root.value("config", json()) : json();
  const json chunks = root.is_object() ? root.value("chunks", json()) : json();
  require(config.is_object() && chunks.is_array() && !chunks.empty(), Fault::file,
          "{}: expected LitData's index with config and chunks. {}", where, kAnew);
  for (const char* key : {"compression", "encryption"})
    require(!config.contains(key) || config[key].is_null(), Fault::file,
            "{}: the chunks have {} {}, and are read only without. {}", where, key,
            shown(config[key]), kAnew);
  Index index{.chunks = {}, .bytes = token_bytes(config, where)};
  for (const json& chunk : chunks) {
    const std::string name = chunk.is_object() ? text_in(chunk, "filename") : "";
    require(!name.empty() && name.find('/') == std::string::npos && name != "..", Fault::file,
            "{}: expected the filename of a chunk in this folder, found {}", where, shown(chunk));
    index.chunks.push_back(folder / name);
  }
  return index;
}

std::string read_bytes(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  require(!error, Fault::file, "{}: cannot read: {}", path.string(), error.message());
  std::string bytes(size, '\0');
  std::ifstream in(path, std::ios::binary);
  in.read(bytes.data(), static_cast<std::streamsize>(size));
  require(in.gcount() == static_cast<std::streamsize>(size), Fault::file, "{}: cannot read: {}",
          path.string(), std::strerror(errno));
  return bytes;
}

template <class T>
T value_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

int64_t token_at(std::string_view bytes, size_t at, size_t size) {
  if (size == 2) return value_at<uint16_t>(bytes, at);
  return size == 4 ? value_at<int32_t>(bytes, at) : value_at<int64_t>(bytes, at);
}

void add_chunk(Dataset& dataset, const fs::path& path, size_t token_size,
               const Tokenizer& tokenizer, int64_t max_seq_length) {
  const std::string bytes = read_bytes(path);
  const auto damaged = [&](const char* what) {
    fail(Fault::file, "{}: {}: the chunk is cut off or damaged. {}", path.string(), what, kAnew);
  };
  if (bytes.size() < 4) damaged("it has no header");
  const size_t items = value_at<uint32_t>(bytes, 0), header = 4 * (items + 2);
  if (bytes.size() < header) damaged("its header says more items than it has room for");
  const int32_t file = dataset.add_file(path.string());
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < items; ++i) {
    const size_t begin = value_at<uint32_t>(bytes, 4 * (i + 1));
    const size_t end = value_at<uint32_t>(bytes, 4 * (i + 2));
    if (begin < header || end < begin || end > bytes.size() || (end - begin) % token_size != 0)
      damaged("an item lies outside of it, or is no row of tokens");
    tokens.clear();
    for (size_t at = begin; at < end; at += token_size) {
      const int64_t id = token_at(bytes, at, token_size);
      require(id >= 0 && id < tokenizer.vocab_size(), Fault::file,
              "{}: item {} has the token {}, and the tokenizer has {}: the chunks were made with "
              "another. Name its folder as --tokenizer_dir",
              path.string(), i, id, tokenizer.vocab_size());
      tokens.push_back(static_cast<int32_t>(id));
    }
    add_document(dataset, tokens, max_seq_length, {.file = file});
  }
}

}  // namespace

bool is_litdata(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder, error) && fs::is_regular_file(folder / "index.json", error);
}

Dataset load_litdata(const fs::path& folder, const Tokenizer& tokenizer, int64_t max_seq_length) {
  const Index index = read_index(folder);
  Dataset dataset;
  for (const fs::path& chunk : index.chunks)
    add_chunk(dataset, chunk, index.bytes, tokenizer, max_seq_length);
  require(dataset.size() > 0, Fault::file, "{}: its chunks hold no document of two tokens or more",
          folder.string());
  return dataset;
}

}  // namespace capstan
