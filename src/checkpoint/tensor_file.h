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

// A type of the safetensors format, and ours for it where there is one.
struct StoredType {
  std::string_view name;
  int64_t size = 0;
  std::optional<DType> dtype;

  StoredType() = default;
  constexpr StoredType(std::string_view name_, int64_t size_, std::optional<DType> dtype_)
      : name(name_), size(size_), dtype(dtype_) {}
  StoredType(DType type);  // as the format calls it
};

struct StoredTensor {
  std::string name;
  StoredType type;
  std::vector<int64_t> shape;    // empty for a single value
  int64_t begin = 0, end = 0;    // the bytes that it lies in, counted from the start of the data
  std::vector<int64_t> strides;  // in values; empty: row-major without gaps

  int64_t nbytes() const { return end - begin; }
  int64_t numel() const;
};

// A file of tensors: their data are read when they are asked for, not before. Belongs to one
// thread.
class TensorFile {
 public:
  virtual ~TensorFile() = default;

  const std::filesystem::path& path() const { return path_; }
  mode_t mode() const { return file_.mode(); }  // its permissions
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  // Null if there is none.
  const StoredTensor* find(std::string_view name) const;

  // n values of a tensor of this file from `first` on, in row-major order, to `to`. One that does
  // not lie in this order is held in memory as a whole, until its last value or another such tensor
  // is read. Throws Fault::file, naming the byte that cannot be read.
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

  mutable const StoredTensor* held_ = nullptr;  // whose bytes these are
  mutable std::vector<std::byte> held_bytes_;
};

std::string to_string(const std::vector<int64_t>& shape);  // "[2, 3]"

}  // namespace capstan
