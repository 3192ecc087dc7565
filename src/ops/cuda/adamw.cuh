#pragma once

#include "ops/adamw_factors.h"
#include "ops/cuda/device.cuh"

// Shared by the optimizers' kernels.
namespace capstan::cuda {

__device__ inline float value_or_one(const float* scalar) {
  return scalar == nullptr ? 1.0f : *scalar;
}

// The larger magnitude of two, as the bits of an f32; NaN is the largest.
__device__ inline uint32_t larger_bits(uint32_t most, float x) {
  return max(most, __float_as_uint(x) & 0x7fffffffu);
}

// The value as far as f16 has it: infinite past its range. Other types are as wide as f32, or
// kNotFiniteBits stands for their end.
template <class T>
__device__ inline float as_stored(const T*, float x) {
  return std::is_same_v<T, f16_t> ? to_float(from_float<f16_t>(x)) : x;
}
__device__ inline float as_stored(AnyPointer to, float x) {
  return to.type == DType::f16 ? to_float(from_float<f16_t>(x)) : x;
}

// All threads that report it store the same value.
__device__ inline void tell_not_finite(double* flag, uint32_t largest) {
  if (flag != nullptr && largest >= kNotFiniteBits) *flag = 1;
}

// rate · m / (√v · root + eps). If not `exact`, uses fast approximate instructions that lose the
// last bits: the exact ones take a dozen each and cost power that other kernels need. Tiny v keep
// their roots.
template <bool kExact>
__device__ float adamw_move(float m, float v, const AdamWFactors& f) {
  if constexpr (kExact) return f.rate * m / (sqrtf(v) * f.root + f.eps);
  float root;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(root) : "f"(v));
  return __fdividef(f.rate * m, root * f.root + f.eps);
}

template <bool kExact>
__device__ void adamw_value(float& w, float grad, float& m, float& v, const AdamWFactors& f) {
  m = f.beta1 * m + f.rest1 * grad;
  v = f.beta2 * v + f.rest2 * (grad * grad);
  w = w * f.decay - adamw_move<kExact>(m, v, f);
}

// Values per access: 16 bytes or, if types differ, at most that.
template <class P>
inline constexpr int kOptimizerPack =
    std::is_same_v<P, bf16_t*> || std::is_same_v<P, f16_t*> ? 8 : 4;

// ---- on the host ---------------------------------------------------------------------------

inline const float* scalar(const Tensor& t) {
  return t ? data<float>(t) : nullptr;
}

}  // namespace capstan::cuda
