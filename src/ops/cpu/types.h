#pragma once

#include "tensor/tensor.h"

// How loops access tensors of any type: read float(x[i]), write store(y[i], value).
namespace capstan::cpu {

// to = value, rounded. In a `#pragma omp simd` loop use this instead of `y[i] = T(value)`: GCC does
// not vectorise a loop with a temporary bf16.
template <class T>
inline void store(T& to, float value) {
  to = T(value);
}

// Calls body.operator()<T>() with the C++ type of `dtype`, f32 or bf16:
//   with_type(x.dtype(), [&]<class T>() { kernel(x.as<T>()); });
template <class Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::bf16: return body.template operator()<bf16>();
    default: fail(Fault::bug, "cpu: no arithmetic on {}", name_of(dtype));
  }
}

// The same for several tensors of independent types.
template <class Body>
void with_types(DType a, DType b, const Body& body) {
  with_type(a,
            [&]<class A>() { with_type(b, [&]<class B>() { body.template operator()<A, B>(); }); });
}

template <class Body>
void with_types(DType a, DType b, DType c, const Body& body) {
  with_type(a, [&]<class A>() {
    with_types(b, c, [&]<class B, class C>() { body.template operator()<A, B, C>(); });
  });
}

// With f16 as well: for ops that only store or convert.
template <class Body>
void with_storage_type(DType dtype, const Body& body) {
  if (dtype == DType::f16) return body.template operator()<f16>();
  with_type(dtype, body);
}

// The rows of a [T, D] or [T, H, D] tensor, numbered across both leading dimensions.
template <class T>
class Rows {
 public:
  explicit Rows(const Tensor& t)
      : data_(t.as<T>()),
        heads_(t.rank() == 3 ? t.dim(1) : 1),
        token_stride_(t.stride(0)),
        head_stride_(t.rank() == 3 ? t.stride(1) : 0) {}

  T* operator[](int64_t row) const {
    if (heads_ == 1) return data_ + row * token_stride_;
    return data_ + row / heads_ * token_stride_ + row % heads_ * head_stride_;
  }

 private:
  T* data_;
  int64_t heads_, token_stride_, head_stride_;
};

// The minimum number of equal work items per thread, if each touches `values_each`: starting a team
// costs some microseconds, in which a core moves this much.
inline int64_t grain_of(int64_t values_each) {
  constexpr int64_t kWorthAThread = 16384;
  return values_each >= kWorthAThread ? 1 : kWorthAThread / (values_each > 0 ? values_each : 1);
}

}  // namespace capstan::cpu
