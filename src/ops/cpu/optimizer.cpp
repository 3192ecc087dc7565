#include "ops/cpu/optimizer.h"

#include <algorithm>
#include <bit>

#include "base/parallel.h"
#include "ops/cpu/optimizer_block.h"
#include "ops/stochastic_rounding.h"

namespace capstan::cpu {
namespace {

template <class Body>
void for_each_block(int64_t n, const Body& body) {
  parallel_for(n, 8 * kOptimizerBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kOptimizerBlock)
      body(i, std::min(kOptimizerBlock, end - i));
  });
}

// Both return 0, or NaN if a weight is not finite; a momentum that is not finite makes its weight
// so.
//
// With momentum. The first step sets m to the gradient, undamped; it ignores the old m, even if
// that is NaN.
float sgd_block(float* w, const float* grad, float* m, int64_t n, float scale, const SgdStep& s) {
  if (s.step == 1) std::fill_n(m, n, 0.0f);
  const float take = s.step == 1 ? 1.0f : 1.0f - s.dampening;
  const float direct = s.nesterov ? 1.0f : 0.0f, by_momentum = s.nesterov ? s.momentum : 1.0f;
  float trace = 0;
#pragma omp simd reduction(+ : trace)
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale + s.weight_decay * w[i];
    m[i] = s.momentum * m[i] + take * g;
    w[i] -= s.lr * (direct * g + by_momentum * m[i]);
    trace += w[i] * 0.0f;
  }
  return trace;
}

float sgd_block(float* w, const float* grad, int64_t n, float scale, const SgdStep& s) {
  float trace = 0;
#pragma omp simd reduction(+ : trace)
  for (int64_t i = 0; i < n; ++i) {
    w[i] -= s.lr * (grad[i] * scale + s.weight_decay * w[i]);
    trace += w[i] * 0.0f;
  }
  return trace;
}

}  // namespace

void round_block(const OptimizerOperands& p, int64_t begin, int64_t n, float* values) {
  if (!p.rounding) return;
  constexpr int64_t kValues = 64;
  int64_t count = 0;
  for (int64_t first = 0; first < n; first += count) {
    uint32_t words[kValues / 2];
    p.rounding->words(static_cast<uint64_t>(p.place.of(begin + first)) / 8, words);
    count = p.place.run(begin + first, std::min(kValues, n - first));
    for (int64_t i = 0; i < count; ++i) {
      float& value = values[first + i];
      value = std::bit_cast<float>(
          stochastic_bf16(std::bit_cast<uint32_t>(value), half_of(words[i / 2], i)));
    }
  }
}

void adamw(const OptimizerOperands& p, const AdamWStep& s, const Tensor& not_finite) {
  const AdamWFactors factors(s);
  const float scale = value_or_one(p.grad_scale);
  if (std::isnan(scale)) return;
  const Tensor& full = p.master ? p.master : p.weight;
  for_each_block(full.numel(), [&](int64_t begin, int64_t n) {
    OptimizerBlock w_block, g_block, m_block, v_block;
    float* const w = w_block.load(full, begin, n);
    float* const m = m_block.load(p.m, begin, n);
    float* const v = v_block.load(p.v, begin, n);
    const float traces = adamw_block(w, g_block.load(p.grad, begin, n), m, v, n, scale, factors);
    round_block(p, begin, n, w);
    bool too_large = store_block(p.weight, begin, n, w);
    too_large |= store_block(p.m, begin, n, m);
    too_large |= store_block(p.v, begin, n, v);
    if (p.master) store_block(p.master, begin, n, w);
    tell_not_finite(not_finite, traces, too_large);
  });
}

void sgd(const OptimizerOperands& p, const SgdStep& s, const Tensor& not_finite) {
  const float scale = value_or_one(p.grad_scale);
  if (std::isnan(scale)) return;
  const Tensor& full = p.master ? p.master : p.weight;
  for_each_block(full.numel(), [&](int64_t begin, int64_t n) {
    OptimizerBlock w_block, g_block, m_block;
    float* const w = w_block.load(full, begin, n);
    const float* const g = g_block.load(p.grad, begin, n);
    float trace = 0;
    bool too_large = false;
    if (p.m) {
      float* const m = m_block.load(p.m, begin, n);
      trace = sgd_block(w, g, m, n, scale, s);
      too_large = store_block(p.m, begin, n, m);
    } else {
      trace = sgd_block(w, g, n, scale, s);
    }
    round_block(p, begin, n, w);
    too_large |= store_block(p.weight, begin, n, w);
    if (p.master) store_block(p.master, begin, n, w);
    tell_not_finite(not_finite, trace, too_large);
  });
}

}  // namespace capstan::cpu
