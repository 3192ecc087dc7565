#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"

namespace capstan {
namespace {

using nlohmann::json;

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeader = 100'000'000;  // the format's own limit
constexpr int kMaxDepth = 8;                 // three are used

constexpr std::array<StoredType, 10> kTypes = {{{"F64", 8, DType::f64},
                                                {"F32", 4, DType::f32},
                                                {"F16", 2, DType::f16},
                                                {"BF16", 2, DType::bf16},
                                                {"I64", 8, {}},
                                                {"I32", 4, DType::i32},
                                                {"I16", 2, {}},
                                                {"I8", 1, {}},
                                                {"U8", 1, DType::u8},
                                                {"BOOL", 1, {}}}};

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A hint if the file is something else altogether.
std::string_view guess(std::string_view start) {
  if (start.starts_with("version https://git-lfs"))
    return "; this is a Git LFS pointer: fetch the file itself with `git lfs pull`";
  if (start.starts_with("PK\x03\x04") || start.starts_with("\x80\x02"))
    return "; this looks like a PyTorch pickle: convert it to safetensors";
  if (start.starts_with("<!") || start.starts_with("<html"))
    return "; this is a web page: download the file again";
  return "; the file is truncated or is not a safetensors file: download or copy it again";
}

// One header, and its location for errors.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view where, int64_t data_bytes)
      : text_(text), where_(fmt::format("{} (header)", where)), data_bytes_(data_bytes) {}

  SafetensorsHeader read() {
    const json root = parse_json(text_, where_, kMaxDepth);
    SafetensorsHeader header;
    header.tensors.reserve(root.size());
    for (const auto& [name, value] : root.items()) {
      if (name == "__metadata__")
        header.metadata = metadata(value);
      else
        header.tensors.push_back(tensor(name, value));
    }
    check_tiling(header.tensors);
    return header;
  }

 private:
  template <class... Args>
  [[noreturn]] void refuse(std::string_view tensor, std::string_view key,
                           fmt::format_string<Args...> format, Args&&... args) const {
    fail(Fault::file, "{}: {}: {}", json_location(text_, where_, {tensor, key}), in_quotes(tensor),
         fmt::format(format, std::forward<Args>(args)...));
  }

  std::map<std::string, std::string> metadata(const json& value) const {
    std::map<std::string, std::string> out;
    if (!value.is_object())
      refuse("__metadata__", "", "expected an object of strings, found {}", shown(value));
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string())
        refuse("__metadata__", key, "expected a string for {}, found {}", in_quotes(key),
               shown(text));
      out[key] = text.get<std::string>();
    }
    return out;
  }

  const json& field(const std::string& name, const json& tensor, const char* key) const {
    const auto it = tensor.find(key);
    if (it == tensor.end()) refuse(name, "", "expected {}, found none", key);
    return *it;
  }

  StoredTensor tensor(const std::string& name, const json& value) const {
    if (!value.is_object()) {
      refuse(name, "", "expected an object with dtype, shape and data_offsets, found {}",
             shown(value));
    }
    for (const auto& [key, _] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        refuse(name, key, "expected only dtype, shape and data_offsets, found {}", in_quotes(key));
    }
    StoredTensor t;
    t.name = name;
    t.type = type(name, field(name, value, "dtype"));
    t.shape = whole_numbers(name, "shape", field(name, value, "shape"));
    const auto offsets = whole_numbers(name, "data_offsets", field(name, value, "data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > data_bytes_) {
      const bool cut = offsets.size() == 2 && offsets[0] <= offsets[1];
      refuse(name, "data_offsets", "expected two offsets within {} bytes of data, found {}{}",
             data_bytes_, to_string(offsets),
             cut ? "; the file is truncated: download or copy it again" : "");
    }
    t.begin = offsets[0];
    t.end = offsets[1];
    check_size(t);
    return t;
  }

  StoredType type(const std::string& name, const json& value) const {
    std::vector<std::string_view> names;
    for (const StoredType& t : kTypes) {
      if (value == t.name) return t;
      names.push_back(t.name);
    }
    refuse(name, "dtype", "expected one of {}, found {}", fmt::join(names, ", "), shown(value));
  }

  std::vector<int64_t> whole_numbers(const std::string& name, const char* key,
                                     const json& value) const {
    if (!value.is_array()) refuse(name, key, "expected a list in {}, found {}", key, shown(value));
    std::vector<int64_t> out;
    out.reserve(value.size());
    for (const json& v : value) {
      if (!v.is_number_unsigned() || v.get<uint64_t>() > INT64_MAX)
        refuse(name, key, "expected whole numbers in {}, found {}", key, shown(v));
      out.push_back(static_cast<int64_t>(v.get<uint64_t>()));
    }
    return out;
  }

  void check_size(const StoredTensor& t) const {
    int64_t bytes = t.type.size;
    bool overflow = false;
    for (const int64_t extent : t.shape) overflow |= __builtin_mul_overflow(bytes, extent, &bytes);
    if (overflow) {
      refuse(t.name, "shape", "expected a size that fits 64 bits, found {} of {}",
             to_string(t.shape), t.type.name);
    }
    if (bytes != t.nbytes()) {
      refuse(t.name, "data_offsets", "expected {} bytes for {} of {}, found {}", bytes,
             to_string(t.shape), t.type.name, t.nbytes());
    }
  }

  // Sorts by offset.
  void check_tiling(std::vector<StoredTensor>& tensors) const {
    std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
    });
    int64_t covered = 0;
    const StoredTensor* before = nullptr;
    for (const StoredTensor& t : tensors) {
      if (t.begin != covered) {
        refuse(t.name, "data_offsets", "expected data from byte {} on, where {} ends, found {}: {}",
               covered, before == nullptr ? "the header" : in_quotes(before->name), t.begin,
               t.begin < covered ? "they overlap" : "there is a gap");
      }
      covered = t.end;
      before = &t;
    }
    require(covered == data_bytes_, Fault::file,
            "{}: expected {} bytes of data, as the last offset says, found {}; the file is "
            "damaged: download or copy it again",
            where_, covered, data_bytes_);
  }

  std::string_view text_;
  std::string where_;
  int64_t data_bytes_;
};

}  // namespace

int64_t safetensors_header_end(std::span<const std::byte> start, int64_t file_bytes,
                               std::string_view where) {
  require(
      file_bytes >= kLengthBytes, Fault::file,
      "{}: expected a safetensors file, found {} bytes, fewer than the {} of the header's length; "
      "download or copy it again",
      where, file_bytes, kLengthBytes);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = (length << 8) | static_cast<uint64_t>(start[i]);
  const int64_t most = std::min(kMaxHeader, file_bytes - kLengthBytes);
  require(length <= static_cast<uint64_t>(most), Fault::file,
          "{}: expected a header of at most {} bytes, found a length of {}{}", where, most, length,
          guess(text_of(start)));
  return kLengthBytes + static_cast<int64_t>(length);
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> start, int64_t file_bytes,
                                           std::string_view where) {
  const int64_t end = safetensors_header_end(start, file_bytes, where);
  const std::string_view text =
      text_of(start.subspan(kLengthBytes, static_cast<size_t>(end - kLengthBytes)));
  require(text.starts_with('{'), Fault::file, "{}: expected a header that begins with {{, found {}",
          where, in_quotes(text.substr(0, 1)));
  SafetensorsHeader header = HeaderReader(text, where, file_bytes - end).read();
  header.data_begin = end;
  return header;
}

const StoredTensor* SafetensorsHeader::find(std::string_view name) const {
  for (const StoredTensor& t : tensors) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

std::string to_string(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace capstan
