#include <algorithm>
#include <bit>

#include "base/parallel.h"
#include "base/subnormals.h"
#include "ops/cpu/dynamic_map.h"
#include "ops/cpu/optimizer.h"
#include "ops/cpu/optimizer_block.h"

namespace capstan::cpu {
namespace {

constexpr int64_t kBlock = kAdamW8bitBlock;
static_assert(kBlock <= kOptimizerBlock);

void widen(const DynamicMap& map, const uint8_t* codes, float absmax, float* x, int64_t n) {
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; ++i) x[i] = map[codes[i]] * absmax;
}

// Returns the largest magnitude; NaN if any value is NaN.
float narrow(const DynamicMap& map, const float* x, uint8_t* codes, int64_t n) {
  const float most = std::bit_cast<float>(largest_bits(x, n));
  // Scale up the smallest moments first: their inverse would be infinite.
  const float lift = most < 0x1p-100f ? 0x1p100f : 1.0f;
  const float inverse = most > 0 ? 1.0f / (most * lift) : 0.0f;
  float scaled[kBlock];
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) scaled[i] = x[i] * lift * inverse;
#pragma GCC unroll 8
  for (int64_t i = 0; i < n; ++i) codes[i] = map.nearest(scaled[i]);
  return most;
}

}  // namespace

void adamw8bit(const OptimizerOperands& p, const MomentScales& absmax, const AdamWStep& s,
               const Tensor& not_finite) {
  const AdamWFactors factors(s);
  const float scale = value_or_one(p.grad_scale);
  if (std::isnan(scale)) return;
  const Tensor& full = p.master ? p.master : p.weight;
  const DynamicMap &m_map = DynamicMap::with_sign(), &v_map = DynamicMap::without_sign();
  uint8_t *const m_codes = p.m.as<uint8_t>(), *const v_codes = p.v.as<uint8_t>();
  float *const m_absmax = absmax.m.as<float>(), *const v_absmax = absmax.v.as<float>();
  parallel_for(adamw8bit_blocks(full.numel()), 16, [&](int64_t begin, int64_t end) {
    const ExactSubnormals exact;  // keep the moments of small gradients
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kBlock, n = std::min(kBlock, full.numel() - first);
      OptimizerBlock w_block, g_block;
      alignas(64) float m[kBlock], v[kBlock];
      widen(m_map, m_codes + first, m_absmax[b], m, n);
      widen(v_map, v_codes + first, v_absmax[b], v, n);
      float* const w = w_block.load(full, first, n);
      const float traces = adamw_block(w, g_block.load(p.grad, first, n), m, v, n, scale, factors);
      m_absmax[b] = narrow(m_map, m, m_codes + first, n);
      v_absmax[b] = narrow(v_map, v, v_codes + first, n);
      round_block(p, first, n, w);
      const bool too_large = store_block(p.weight, first, n, w);
      if (p.master) store_block(p.master, first, n, w);
      tell_not_finite(not_finite, traces, too_large);
    }
  });
}

}  // namespace capstan::cpu
