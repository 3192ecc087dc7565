#include "checkpoint/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace capstan {
namespace {

int64_t nbytes(const std::vector<SafetensorsWriter::Item>& items) {
  int64_t bytes = 0;
  for (const auto& item : items) bytes += item.nbytes();
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
    const int64_t end = offset + item.nbytes();
    root[item.name] = {
        {"dtype", item.type.name}, {"shape", item.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = items.empty() && metadata.empty() ? "{}" : root.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>((text.size() >> (8 * i)) & 0xff);
  return length + text;
}

SafetensorsHeader read_header(const FileReader& file) {
  const std::string where = file.path().string();
  std::vector<std::byte> start(static_cast<size_t>(std::min(kSafetensorsStart, file.size())));
  file.read(0, start);
  start.resize(static_cast<size_t>(safetensors_header_end(start, file.size(), where)));
  file.read(0, start);
  return parse_safetensors_header(start, file.size(), where);
}

}  // namespace

int64_t SafetensorsWriter::Item::nbytes() const {
  int64_t bytes = type.size;
  for (const int64_t extent : shape) bytes *= extent;
  return bytes;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : TensorFile(path), header_(read_header(file_)) {
  data_begin_ = header_.data_begin;
  tensors_ = header_.tensors;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<Item>& items,
                                     const std::map<std::string, std::string>& metadata,
                                     mode_t mode)
    : header_(make_header(items, metadata)),
      expected_(static_cast<int64_t>(header_.size()) + nbytes(items)),
      file_(path, expected_, mode) {
  file_.append(std::as_bytes(std::span(header_)));
}

FileSum SafetensorsWriter::commit() {
  require(file_.written() == expected_, Fault::bug, "safetensors: {} bytes written, not {}",
          file_.written(), expected_);
  return file_.commit();
}

}  // namespace capstan
