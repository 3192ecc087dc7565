#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file_reader.h"

namespace capstan {

// A type of the safetensors format, and our type for it if there is one.
struct StoredType {
  std::string_view name;
  int64_t size = 0;
  std::optional<DType> dtype;

  StoredType() = default;
  constexpr StoredType(std::string_view name_, int64_t size_, std::optional<DType> dtype_)
      : name(name_), size(size_), dtype(dtype_) {}
  StoredType(DType type);  // its name in the format
};

struct StoredTensor {
  std::string name;
  StoredType type;
  std::vector<int64_t> shape;    // empty for a scalar
  int64_t begin = 0, end = 0;    // its byte range, from the start of the data
  std::vector<int64_t> strides;  // in values; empty: contiguous, row-major

  int64_t nbytes() const { return end - begin; }
  int64_t numel() const;
};

// A file of tensors. Reads data only on request. Not thread safe.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  const std::filesystem::path& path() const { return path_; }
  mode_t mode() const { return file_.mode(); }  // its permissions
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Null if there is none.
  const StoredTensor* find(std::string_view name) const;

  // Reads n values of a tensor of this file, starting at `first`, in row-major order, to `to`. A
  // tensor with another layout is held in memory as a whole, until its last value or another such
  // tensor is read. Throws Fault::file, naming the byte that cannot be read.
  void read_to(std::byte* to, const StoredTensor& tensor, int64_t first, int64_t n) const;
  // The same to `room`, which is returned.
  std::span<const std::byte> read(const StoredTensor& tensor, int64_t first, int64_t n,
                                  std::vector<std::byte>& room) const;

 protected:
  explicit TensorFile(const std::filesystem::path& path) : path_(path), file_(path) {}

  std::filesystem::path path_;
  FileReader file_;
  int64_t data_begin_ = 0;
  std::vector<StoredTensor> tensors_;

 private:
  void gather(std::byte* to, const StoredTensor& tensor, int64_t first, int64_t n) const;

  mutable const StoredTensor* held_ = nullptr;  // the tensor in the buffer
  mutable std::vector<std::byte> held_bytes_;
};

std::string to_string(const std::vector<int64_t>& shape);  // "[2, 3]"

}  // namespace capstan
