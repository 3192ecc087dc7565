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

// Calls body.operator()<T>() with the C++ type of `dtype`, f32, bf16 or f16:
//   with_type(x.dtype(), [&]<class T>() { kernel(x.as<T>()); });
template <class Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::f32: return body.template operator()<float>();
    case DType::bf16: return body.template operator()<bf16>();
    case DType::f16: return body.template operator()<f16>();
    default: fail(Fault::bug, "cpu: no arithmetic on {}", name_of(dtype));
  }
}

// Whether one op may have both: bf16 and f16 do not meet, so nothing is compiled for them together.
template <class A, class B>
inline constexpr bool kMayMeet =
    dtype_of<A> == dtype_of<B> || dtype_of<A> == DType::f32 || dtype_of<B> == DType::f32;

// Calls body.operator()<Known…, T…>() with the next kMore types.
template <int kMore, class... Known>
struct WithTypes {
  template <class Body>
  static void call(const DType* next, const Body& body) {
    with_type(*next, [&]<class T>() {
      if constexpr (!(kMayMeet<Known, T> && ...))
        fail(Fault::bug, "cpu: no arithmetic on {} with another narrow type", name_of(*next));
      else if constexpr (kMore > 1)
        WithTypes<kMore - 1, Known..., T>::call(next + 1, body);
      else
        body.template operator()<Known..., T>();
    });
  }
};

// The same for several tensors, each f32 or of the one narrow type of all.
template <class Body>
void with_types(DType a, DType b, const Body& body) {
  const DType types[] = {a, b};
  WithTypes<2>::call(types, body);
}
template <class Body>
void with_types(DType a, DType b, DType c, const Body& body) {
  const DType types[] = {a, b, c};
  WithTypes<3>::call(types, body);
}
template <class Body>
void with_types(DType a, DType b, DType c, DType d, const Body& body) {
  const DType types[] = {a, b, c, d};
  WithTypes<4>::call(types, body);
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
