#pragma once

#include "ops/adamw_factors.h"
#include "ops/cuda/device.cuh"

// What the kernels of the optimizers share.
namespace capstan::cuda {

__device__ inline float value_or_one(const float* scalar) {
  return scalar == nullptr ? 1.0f : *scalar;
}

__device__ inline void adamw_value(float& w, float grad, float& m, float& v,
                                   const AdamWFactors& f) {
  m = f.beta1 * m + f.rest1 * grad;
  v = f.beta2 * v + f.rest2 * (grad * grad);
  w = w * f.decay - f.rate * m / (sqrtf(v) * f.root + f.eps);
}

// Values that are read in one access, of 16 bytes or, where types differ, at most that.
template <class P>
inline constexpr int kOptimizerPack = std::is_same_v<P, bf16_t*> ? 8 : 4;

// ---- on the host ---------------------------------------------------------------------------

inline const float* scalar(const Tensor& t) {
  return t ? data<float>(t) : nullptr;
}

}  // namespace capstan::cuda
