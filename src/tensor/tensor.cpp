#include "tensor/tensor.h"

namespace capstan {

Shape::Shape(std::initializer_list<int64_t> extents) {
  require(extents.size() >= 1 && extents.size() <= 4, Fault::bug, "a shape has 1 to 4 extents");
  for (const int64_t e : extents) {
    require(e >= 0, Fault::bug, "a shape has a negative extent: {}", e);
    extent_[static_cast<size_t>(rank_++)] = e;
  }
}

int64_t Shape::numel() const {
  int64_t n = rank_ > 0 ? 1 : 0;
  for (int i = 0; i < rank_; ++i) n *= (*this)[i];
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && extent_ == other.extent_;
}

std::string to_string(const Shape& shape) {
  std::string s = "[";
  for (int i = 0; i < shape.rank(); ++i) s += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

Tensor::Tensor(void* data, DType dtype, const Shape& shape)
    : data_(data), dtype_(dtype), shape_(shape) {
  int64_t stride = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    stride_[static_cast<size_t>(i)] = stride;
    stride *= shape_[i];
  }
}

bool Tensor::contiguous() const {
  int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape_[i] != 1 && stride(i) != expected) return false;
    expected *= shape_[i];
  }
  return true;
}

void Tensor::wrong_type(DType wanted) const {
  fail(Fault::bug, "tensor {} of {} used as {}", shape_, name_of(dtype_), name_of(wanted));
}

Tensor Tensor::view_at(int64_t element) const {
  Tensor t = *this;
  if (data_ != nullptr) t.data_ = static_cast<std::byte*>(data_) + element * size_of(dtype_);
  return t;
}

Tensor Tensor::rows(int64_t begin, int64_t count) const {
  require(rank() > 0 && begin >= 0 && count >= 0 && count <= dim(0) - begin, Fault::bug,
          "rows {}+{} of tensor {}", begin, count, shape_);
  Tensor t = view_at(begin * stride(0));
  t.shape_[0] = count;
  return t;
}

Tensor Tensor::cols(int64_t begin, int64_t count) const {
  require(rank() > 0 && begin >= 0 && count >= 0 && count <= dim(-1) - begin, Fault::bug,
          "columns {}+{} of tensor {}", begin, count, shape_);
  Tensor t = view_at(begin);
  t.shape_[rank() - 1] = count;
  return t;
}

Tensor Tensor::heads(int64_t count) const {
  require(rank() == 2 && count > 0 && dim(1) % count == 0, Fault::bug,
          "tensor {} does not split into {} heads", shape_, count);
  Tensor t = *this;
  t.shape_ = {dim(0), count, dim(1) / count};
  t.stride_ = {stride(0), dim(1) / count, 1, 0};
  return t;
}

Tensor Tensor::viewed_as(DType type) const {
  require(contiguous() && nbytes() % size_of(type) == 0, Fault::bug, "{} of {} viewed as {}",
          shape_, name_of(dtype_), name_of(type));
  return Tensor(data_, type, {nbytes() / size_of(type)});
}

Tensor Tensor::reshape(const Shape& shape) const {
  require(contiguous() && shape.numel() == numel(), Fault::bug, "tensor {} reshaped to {}", shape_,
          shape);
  return {data_, dtype_, shape};
}

}  // namespace capstan
