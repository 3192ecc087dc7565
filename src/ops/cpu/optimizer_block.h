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

// The larger magnitude, as the bits of an f32: in the same order as floats, which vectorises, and
// NaN is the largest.
inline uint32_t larger_bits(uint32_t most, float x) {
  const uint32_t size = std::bit_cast<uint32_t>(x) & 0x7fffffffu;
  return size > most ? size : most;
}
inline uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) most = larger_bits(most, x[i]);
  return most;
}

// Does nothing for f32 that was loaded from there: it has been changed in place. Returns
// largest_bits of values that are narrowed, which may make one infinite, and else 0.
inline uint32_t store_block(const Tensor& t, int64_t begin, int64_t n, const float* values) {
  if (t.dtype() == DType::f32) {
    float* const to = t.as<float>() + begin;
    if (to != values) std::copy_n(values, n, to);
    return 0;
  }
  bf16* const to = t.as<bf16>() + begin;
  uint32_t most = 0;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < n; ++i) {
    store(to[i], values[i]);
    most = larger_bits(most, values[i]);
  }
  return most;
}

// Puts the bf16 in the values' place that their draws choose, so that storing is exact. `begin` is
// a multiple of 8.
void round_block(const OptimizerOperands& p, int64_t begin, int64_t n, float* values);

inline float value_or_one(const Tensor& scalar) {
  return scalar ? *scalar.as<float>() : 1.0f;
}

// Of a block: `traces` is NaN where a value of it is not finite, `narrowed` is store_block's.
// Threads may tell of it at the same time.
inline void tell_not_finite(const Tensor& flag, float traces, uint32_t narrowed) {
  if (flag && (std::isnan(traces) || narrowed >= kNotFiniteBits))
    std::atomic_ref<double>(*flag.as<double>()).store(1, std::memory_order_relaxed);
}

// Returns 0, or NaN if a weight or moment is not finite: times 0 those are NaN. A first moment that
// is not makes its weight so. (In the loop, by one instruction each, which costs the least.)
inline float adamw_block(float* w, const float* grad, float* m, float* v, int64_t n, float scale,
                         const AdamWFactors& f) {
  float w_trace = 0, v_trace = 0;
#pragma omp simd reduction(+ : w_trace, v_trace)
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale;
    m[i] = f.beta1 * m[i] + f.rest1 * g;
    v[i] = f.beta2 * v[i] + f.rest2 * (g * g);
    w[i] = w[i] * f.decay - f.rate * m[i] / (std::sqrt(v[i]) * f.root + f.eps);
    w_trace += w[i] * 0.0f;
    v_trace += v[i] * 0.0f;
  }
  return w_trace + v_trace;
}

}  // namespace capstan::cpu
