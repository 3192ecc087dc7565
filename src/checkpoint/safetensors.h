#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "checkpoint/tensor_file.h"

// The safetensors format: 8 bytes with the length N of the header (little endian), N bytes of JSON
//   {"__metadata__": {"key": "text", …}, "NAME": {"dtype": "BF16", "shape": [2, 3],
//    "data_offsets": [0, 12]}, …}
// padded with spaces, then the data. Offsets count from the start of the data.
namespace capstan {

struct SafetensorsHeader {
  int64_t data_begin = 0;             // in the file
  std::vector<StoredTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;

  const StoredTensor* find(std::string_view name) const;  // null if there is none
};

// Parses and validates the header of a file of `file_bytes` bytes: the header lies within the file
// and is at most 100,000,000 bytes of strict JSON; every tensor has a known type, a size that does
// not overflow and the matching number of bytes; together the tensors cover the data exactly,
// without gap or overlap. `start` is the file's beginning: at least safetensors_header_end bytes.
// Throws Fault::file, naming `where` and the tensor.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> start, int64_t file_bytes,
                                           std::string_view where);
// The end of the header. Throws as parse_safetensors_header does; needs only the first
// kSafetensorsStart bytes, or the whole file if it is shorter.
int64_t safetensors_header_end(std::span<const std::byte> start, int64_t file_bytes,
                               std::string_view where);
inline constexpr int64_t kSafetensorsStart = 64;

class SafetensorsFile : public TensorFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const SafetensorsHeader& header() const { return header_; }

 private:
  SafetensorsHeader header_;
};

// Writes a file; the tensors are declared first, then their data is appended in pieces, in order.
class SafetensorsWriter {
 public:
  struct Item {
    std::string name;
    StoredType type;
    std::vector<int64_t> shape;

    int64_t nbytes() const;
  };
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Item>& items,
                    const std::map<std::string, std::string>& metadata, mode_t mode = kUsualMode);

  void append(std::span<const std::byte> data) { file_.append(data); }
  // Makes the file appear. Throws Fault::bug unless exactly the bytes of all items were appended.
  FileSum commit();

 private:
  std::string header_;
  int64_t expected_;
  NewFile file_;
};

}  // namespace capstan
