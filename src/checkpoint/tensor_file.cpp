#include "checkpoint/tensor_file.h"

#include <cstring>

#include "base/error.h"

namespace capstan {
namespace {

std::string_view stored_name(DType t) {
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

}  // namespace

StoredType::StoredType(DType type) : StoredType(stored_name(type), size_of(type), type) {}

int64_t StoredTensor::numel() const {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

const StoredTensor* TensorFile::find(std::string_view name) const {
  for (const StoredTensor& t : tensors_)
    if (t.name == name) return &t;
  return nullptr;
}

void TensorFile::gather(std::byte* to, const StoredTensor& tensor, int64_t first, int64_t n) const {
  if (held_ != &tensor) {
    held_ = nullptr;
    held_bytes_.resize(static_cast<size_t>(tensor.nbytes()));
    file_.read_parallel(data_begin_ + tensor.begin, held_bytes_);
    held_ = &tensor;
  }
  const int64_t size = tensor.type.size;
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = first + i, at = 0;
    for (size_t d = tensor.shape.size(); d-- > 0;) {
      at += rest % tensor.shape[d] * tensor.strides[d];
      rest /= tensor.shape[d];
    }
    std::memcpy(to + i * size, held_bytes_.data() + at * size, static_cast<size_t>(size));
  }
  if (first + n < tensor.numel()) return;
  held_ = nullptr;
  held_bytes_ = std::vector<std::byte>();
}

void TensorFile::read_to(std::byte* to, const StoredTensor& tensor, int64_t first,
                         int64_t n) const {
  require(first >= 0 && n >= 0 && first <= tensor.numel() - n, Fault::bug,
          "{}: values {} to {} of {}", tensor.name, first, first + n, tensor.numel());
  if (n == 0) return;
  if (!tensor.strides.empty()) return gather(to, tensor, first, n);
  const int64_t size = tensor.type.size;
  file_.read_parallel(data_begin_ + tensor.begin + first * size,
                      {to, static_cast<size_t>(n * size)});
}

std::span<const std::byte> TensorFile::read(const StoredTensor& tensor, int64_t first, int64_t n,
                                            std::vector<std::byte>& room) const {
  const auto bytes = static_cast<size_t>(n * tensor.type.size);
  if (room.capacity() < bytes)
    room = std::vector<std::byte>();  // free the old buffer first: never two at once
  room.resize(bytes);
  read_to(room.data(), tensor, first, n);
  return room;
}

}  // namespace capstan
