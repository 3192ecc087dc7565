#include "data/records/litdata_format.h"

#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace capstan {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "chunks are little-endian");

// LitData's numbers for PyTorch's types.
struct TokenType {
  int number;
  size_t bytes;
};
constexpr TokenType kTypes[] = {{15, 4}, {16, 4}, {17, 8}, {18, 8}, {20, 2}};

constexpr const char* kRewrite =
    "Rewrite the dataset with LitGPT, or use its texts: --data TextFiles --data.train_data_path "
    "PATH";

size_t token_bytes_of(const json& config, std::string_view where) {
  const json format = config.value("data_format", json());
  const bool one = format.is_array() && format.size() == 1 && format[0].is_string();
  const std::string name = one ? format[0].get<std::string>() : "";
  for (const TokenType& type : kTypes)
    if (name == fmt::format("no_header_tensor:{}", type.number)) return type.bytes;
  fail(Fault::file,
       "{}: expected chunks of tokens (a data_format of no_header_tensor in int32, int64 or "
       "uint16), found {}. {}",
       where, one ? in_quotes(name) : shown(format), kRewrite);
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

[[noreturn]] void damaged(std::string_view where, const char* what) {
  fail(Fault::file, "{}: {}: the chunk is truncated or damaged. {}", where, what, kRewrite);
}

}  // namespace

LitDataIndex parse_litdata_index(std::string_view text, std::string_view where) {
  const json root = parse_json(text, where);
  const json config = root.is_object() ? root.value("config", json()) : json();
  const json chunks = root.is_object() ? root.value("chunks", json()) : json();
  require(config.is_object() && chunks.is_array() && !chunks.empty(), Fault::file,
          "{}: expected LitData's index with config and chunks. {}", where, kRewrite);
  for (const char* key : {"compression", "encryption"}) {
    const json used = config.value(key, json());
    require(used.is_null(), Fault::file, "{}: the chunks have {} {}, which is not supported. {}",
            where, key, shown(used), kRewrite);
  }
  LitDataIndex index{.chunks = {}, .token_bytes = token_bytes_of(config, where)};
  for (const json& chunk : chunks) {
    const json name = chunk.is_object() ? chunk.value("filename", json()) : json();
    const std::string file = name.is_string() ? name.get<std::string>() : "";
    require(!file.empty() && file.find('/') == std::string::npos, Fault::file,
            "{}: expected the filename of a chunk in this folder, found {}", where, shown(chunk));
    index.chunks.push_back(file);
  }
  return index;
}

void read_litdata_chunk(std::string_view bytes, std::string_view where, size_t token_bytes,
                        int64_t vocab, const std::function<void(std::span<const int32_t>)>& take) {
  if (bytes.size() < 4) damaged(where, "it has no header");
  const size_t items = value_at<uint32_t>(bytes, 0), header = 4 * (items + 2);
  if (bytes.size() < header) damaged(where, "its header lists more items than fit");
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < items; ++i) {
    const size_t begin = value_at<uint32_t>(bytes, 4 * (i + 1));
    const size_t end = value_at<uint32_t>(bytes, 4 * (i + 2));
    if (begin < header || end < begin || end > bytes.size() || (end - begin) % token_bytes != 0)
      damaged(where, "an item is out of bounds, or is not a row of tokens");
    tokens.clear();
    for (size_t at = begin; at < end; at += token_bytes) {
      const int64_t id = token_at(bytes, at, token_bytes);
      require(id >= 0 && id < vocab, Fault::file,
              "{}: item {} has the token {}, but the tokenizer has {}: the chunks were made with "
              "another. Set --tokenizer_dir to its folder",
              where, i, id, vocab);
      tokens.push_back(static_cast<int32_t>(id));
    }
    take(tokens);
  }
}

}  // namespace capstan
