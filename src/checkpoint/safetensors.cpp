#include "checkpoint/safetensors.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"

namespace capstan {
namespace {

const char* stored_name(DType t) {
  switch (t) {
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::i32: return "I32";
    case DType::u8: return "U8";
    case DType::f64: return "F64";
  }
  return "?";
}

int64_t nbytes(const SafetensorsWriter::Item& item) {
  int64_t bytes = size_of(item.dtype);
  for (const int64_t extent : item.shape) bytes *= extent;
  return bytes;
}

int64_t nbytes(const std::vector<SafetensorsWriter::Item>& items) {
  int64_t bytes = 0;
  for (const auto& item : items) bytes += nbytes(item);
  return bytes;
}

// The length and the JSON, padded so that the data is aligned for every type.
std::string make_header(const std::vector<SafetensorsWriter::Item>& items,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json root;
  if (!metadata.empty()) root["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const auto& item : items) {
    require(!root.contains(item.name), Fault::bug, "safetensors: {} is written twice", item.name);
    const int64_t end = offset + nbytes(item);
    root[item.name] = {
        {"dtype", stored_name(item.dtype)}, {"shape", item.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = items.empty() && metadata.empty() ? "{}" : root.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : path_(path), file_(path), header_(parse_safetensors_header(file_.bytes(), path.string())) {}

std::span<const std::byte> SafetensorsFile::bytes(const StoredTensor& tensor) const {
  return file_.bytes().subspan(static_cast<size_t>(header_.data_begin + tensor.begin),
                               static_cast<size_t>(tensor.nbytes()));
}

DType SafetensorsFile::dtype(const StoredTensor& tensor) const {
  require(tensor.type.dtype.has_value(), Fault::file,
          "{}: {}: expected one of F64, F32, F16, BF16, I32, U8, found {}, which is not read",
          path_.string(), in_quotes(tensor.name), tensor.type.name);
  return *tensor.type.dtype;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<Item>& items,
                                     const std::map<std::string, std::string>& metadata)
    : header_(make_header(items, metadata)),
      expected_(static_cast<int64_t>(header_.size()) + nbytes(items)),
      file_(path, expected_) {
  file_.append(std::as_bytes(std::span(header_)));
}

void SafetensorsWriter::commit() {
  require(file_.written() == expected_, Fault::bug, "safetensors: {} bytes written, not {}",
          file_.written(), expected_);
  file_.commit();
}

}  // namespace capstan
