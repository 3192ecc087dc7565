#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "ops/adamw_factors.h"
#include "ops/cpu/types.h"

// What the optimizers' loops share.
namespace capstan::cpu {

// Parameters are walked in blocks that stay in the first-level cache. A block of bf16 is widened
// into room on the stack and narrowed afterwards, so that one loop serves every mix of types.
inline constexpr int64_t kOptimizerBlock = 512;

class OptimizerBlock {
 public:
  float* load(const Tensor& t, int64_t begin, int64_t n) {
    if (t.dtype() == DType::f32) return t.as<float>() + begin;
    const bf16* const from = t.as<bf16>() + begin;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) room_[i] = float(from[i]);
    return room_;
  }

 private:
  alignas(64) float room_[kOptimizerBlock];
};

// Does nothing for f32 that was loaded from there: it has been changed in place.
inline void store_block(const Tensor& t, int64_t begin, int64_t n, const float* values) {
  if (t.dtype() == DType::f32) {
    float* const to = t.as<float>() + begin;
    if (to != values) std::copy_n(values, n, to);
    return;
  }
  bf16* const to = t.as<bf16>() + begin;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(to[i], values[i]);
}

// Puts the bf16 in the values' place that their draws choose, so that storing is exact. `begin` is
// a multiple of 8.
void round_block(const std::optional<Rng>& rounding, int64_t begin, int64_t n, float* values);

inline float value_or_one(const Tensor& scalar) {
  return scalar ? *scalar.as<float>() : 1.0f;
}

// The largest magnitude, as the bits of an f32: in the same order as floats, which vectorises, and
// NaN is the largest.
inline uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t size = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
    most = size > most ? size : most;
  }
  return most;
}

// Threads may tell of it at the same time.
inline void tell_not_finite(const Tensor& flag, uint32_t largest) {
  if (flag && largest >= kNotFiniteBits)
    std::atomic_ref<double>(*flag.as<double>()).store(1, std::memory_order_relaxed);
}

inline void adamw_block(float* w, const float* grad, float* m, float* v, int64_t n, float scale,
                        const AdamWFactors& f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale;
    m[i] = f.beta1 * m[i] + f.rest1 * g;
    v[i] = f.beta2 * v[i] + f.rest2 * (g * g);
    w[i] = w[i] * f.decay - f.rate * m[i] / (std::sqrt(v[i]) * f.root + f.eps);
  }
}

}  // namespace capstan::cpu
