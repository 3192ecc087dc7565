#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "ops/adamw_factors.h"
#include "ops/cpu/types.h"

// Shared by the optimizers' loops.
namespace capstan::cpu {

// Processes parameters in blocks that stay in the L1 cache. A narrow block is converted to a buffer
// on the stack and back, so that one loop serves every mix of types.
inline constexpr int64_t kOptimizerBlock = 512;

class OptimizerBlock {
 public:
  float* load(const Tensor& t, int64_t begin, int64_t n) {
    if (t.dtype() == DType::f32) return t.as<float>() + begin;
    with_type(t.dtype(), [&]<class T>() {
      const T* const from = t.as<T>() + begin;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) room_[i] = float(from[i]);
    });
    return room_;
  }

 private:
  alignas(64) float room_[kOptimizerBlock];
};

// The larger magnitude, as the bits of an f32: ordered like floats, vectorizable, and NaN is the
// largest.
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

// Does nothing for f32, which was updated in place. Returns whether a value that is converted to a
// narrow type becomes infinite.
inline bool store_block(const Tensor& t, int64_t begin, int64_t n, const float* values) {
  if (t.dtype() == DType::f32) {
    float* const to = t.as<float>() + begin;
    if (to != values) std::copy_n(values, n, to);
    return false;
  }
  uint32_t most = 0;
  with_type(t.dtype(), [&]<class T>() {
    T* const to = t.as<T>() + begin;
#pragma omp simd reduction(max : most)
    for (int64_t i = 0; i < n; ++i) {
      store(to[i], values[i]);
      most = larger_bits(most, values[i]);
    }
  });
  return most >= (t.dtype() == DType::f16 ? kNotFiniteHalfBits : kNotFiniteBits);
}

// Replaces the values by the bf16 that their draws choose, so that storing is exact. `begin` is a
// multiple of 8.
void round_block(const OptimizerOperands& p, int64_t begin, int64_t n, float* values);

inline float value_or_one(const Tensor& scalar) {
  return scalar ? *scalar.as<float>() : 1.0f;
}

// For a block: `traces` is NaN if a value is not finite, `too_large` is the result of store_block.
// Thread safe.
inline void tell_not_finite(const Tensor& flag, float traces, bool too_large) {
  if (flag && (std::isnan(traces) || too_large))
    std::atomic_ref<double>(*flag.as<double>()).store(1, std::memory_order_relaxed);
}

// Returns 0, or NaN if a weight or moment is not finite: times 0 they give NaN. A non-finite first
// moment makes its weight so. (In the loop this takes one instruction each, the cheapest way.)
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
