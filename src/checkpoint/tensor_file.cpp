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

std::span<const std::byte> TensorFile::read(const StoredTensor& tensor, int64_t first, int64_t n,
                                            std::vector<std::byte>& room) const {
  require(first >= 0 && n >= 0 && first <= tensor.numel() - n, Fault::bug,
          "{}: values {} to {} of {}", tensor.name, first, first + n, tensor.numel());
  const int64_t size = tensor.type.size;
  const std::byte* data = file_.bytes().data() + data_begin_ + tensor.begin;
  if (tensor.strides.empty()) return {data + first * size, static_cast<size_t>(n * size)};
  room.resize(static_cast<size_t>(n * size));
  for (int64_t i = 0; i < n; ++i) {
    int64_t rest = first + i, at = 0;
    for (size_t d = tensor.shape.size(); d-- > 0;) {
      at += rest % tensor.shape[d] * tensor.strides[d];
      rest /= tensor.shape[d];
    }
    std::memcpy(room.data() + i * size, data + at * size, static_cast<size_t>(size));
  }
  return room;
}

}  // namespace capstan
