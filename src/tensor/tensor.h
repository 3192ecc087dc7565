#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/dtype.h"
#include "base/error.h"

namespace capstan {

// One to four extents. No heap: shapes are created inside the training step.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> extents);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return extent_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return extent_[static_cast<size_t>(i)]; }
  int64_t numel() const;
  bool operator==(const Shape& other) const;

 private:
  friend class Tensor;
  int rank_ = 0;
  std::array<int64_t, 4> extent_{};
};

std::string to_string(const Shape& shape);  // "[2, 3]"; messages take the Shape itself

// A typed view of memory owned by a Buffer or a mapped file. Copying copies the view. The last
// dimension is always dense; the others may have strides, so that q, k and v can be views of one
// product. On `sim` the address is null and only the shape is meaningful.
class Tensor {
 public:
  Tensor() = default;  // "absent": a missing optional operand
  Tensor(void* data, DType dtype, const Shape& shape);

  explicit operator bool() const { return shape_.rank() > 0; }  // present?

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  // Negative i counts from the end.
  int64_t dim(int i) const { return shape_[i < 0 ? i + rank() : i]; }
  int64_t stride(int i) const { return stride_[static_cast<size_t>(i < 0 ? i + rank() : i)]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t nbytes() const { return numel() * size_of(dtype_); }
  bool contiguous() const;

  void* raw() const { return data_; }
  // The address as T*; throws if the tensor holds another type.
  template <class T>
  T* as() const {
    if (dtype_ != dtype_of<T>) [[unlikely]]
      wrong_type(dtype_of<T>);
    return static_cast<T*>(data_);
  }

  // Views. Each throws Fault::bug if it does not fit.
  Tensor rows(int64_t begin, int64_t count) const;  // of dimension 0
  Tensor cols(int64_t begin, int64_t count) const;  // of the last dimension
  Tensor heads(int64_t count) const;                // [T, count * D] as [T, count, D]
  Tensor reshape(const Shape& shape) const;         // contiguous only; same number of values
  // The bytes of a contiguous tensor as one row of another type, which must divide them.
  Tensor viewed_as(DType type) const;

 private:
  [[noreturn]] void wrong_type(DType wanted) const;
  Tensor view_at(int64_t element) const;

  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  Shape shape_;
  std::array<int64_t, 4> stride_{};
};

}  // namespace capstan

// Formats only when the message is built: checks that pass use no heap.
template <>
struct fmt::formatter<capstan::Shape> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const capstan::Shape& shape, Context& context) const {
    return fmt::formatter<std::string>::format(capstan::to_string(shape), context);
  }
};
