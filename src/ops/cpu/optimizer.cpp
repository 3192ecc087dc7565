#include "ops/cpu/optimizer.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

// Parameters are walked in blocks that stay in the first-level cache. A block of bf16 is widened
// into room on the stack and narrowed afterwards, so that one loop serves every mix of types.
constexpr int64_t kBlock = 512;

class Block {
 public:
  float* load(const Tensor& t, int64_t begin, int64_t n) {
    if (t.dtype() == DType::f32) return t.as<float>() + begin;
    const bf16* const from = t.as<bf16>() + begin;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) room_[i] = float(from[i]);
    return room_;
  }

 private:
  alignas(64) float room_[kBlock];
};

// Does nothing for f32 that was loaded from there: it has been changed in place.
void store_block(const Tensor& t, int64_t begin, int64_t n, const float* values) {
  if (t.dtype() == DType::f32) {
    float* const to = t.as<float>() + begin;
    if (to != values) std::copy_n(values, n, to);
    return;
  }
  bf16* const to = t.as<bf16>() + begin;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) store(to[i], values[i]);
}

template <class Body>
void for_each_block(int64_t n, const Body& body) {
  parallel_for(n, 8 * kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kBlock) body(i, std::min(kBlock, end - i));
  });
}

float value_or_one(const Tensor& scalar) {
  return scalar ? *scalar.as<float>() : 1.0f;
}

// AdamWStep with everything that does not depend on the value worked out in double precision.
struct AdamWFactors {
  float beta1, rest1, beta2, rest2, eps, decay, rate, root;

  explicit AdamWFactors(const AdamWStep& s)
      : beta1(s.beta1),
        rest1(static_cast<float>(1.0 - double{s.beta1})),
        beta2(s.beta2),
        rest2(static_cast<float>(1.0 - double{s.beta2})),
        eps(s.eps),
        decay(static_cast<float>(1.0 - double{s.lr} * double{s.weight_decay})),
        rate(static_cast<float>(s.lr / correction(s.beta1, s.step))),
        root(static_cast<float>(1.0 / std::sqrt(correction(s.beta2, s.step)))) {}

  static double correction(float beta, int64_t step) {
    return 1.0 - std::pow(double{beta}, static_cast<double>(step));
  }
};

void adamw_block(float* w, const float* grad, float* m, float* v, int64_t n, float scale,
                 const AdamWFactors& f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale;
    m[i] = f.beta1 * m[i] + f.rest1 * g;
    v[i] = f.beta2 * v[i] + f.rest2 * (g * g);
    w[i] = w[i] * f.decay - f.rate * m[i] / (std::sqrt(v[i]) * f.root + f.eps);
  }
}

// With momentum. The first step starts m as the gradient, undamped; what m held does not count, not
// even if it is NaN.
void sgd_block(float* w, const float* grad, float* m, int64_t n, float scale, const SgdStep& s) {
  if (s.step == 1) std::fill_n(m, n, 0.0f);
  const float take = s.step == 1 ? 1.0f : 1.0f - s.dampening;
  const float direct = s.nesterov ? 1.0f : 0.0f, by_momentum = s.nesterov ? s.momentum : 1.0f;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale + s.weight_decay * w[i];
    m[i] = s.momentum * m[i] + take * g;
    w[i] -= s.lr * (direct * g + by_momentum * m[i]);
  }
}

void sgd_block(float* w, const float* grad, int64_t n, float scale, const SgdStep& s) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) w[i] -= s.lr * (grad[i] * scale + s.weight_decay * w[i]);
}

}  // namespace

void adamw(const OptimizerOperands& p, const AdamWStep& s) {
  const AdamWFactors factors(s);
  const float scale = value_or_one(p.grad_scale);
  const Tensor& full = p.master ? p.master : p.weight;
  for_each_block(full.numel(), [&](int64_t begin, int64_t n) {
    Block w_block, g_block, m_block, v_block;
    float* const w = w_block.load(full, begin, n);
    float* const m = m_block.load(p.m, begin, n);
    float* const v = v_block.load(p.v, begin, n);
    adamw_block(w, g_block.load(p.grad, begin, n), m, v, n, scale, factors);
    store_block(p.weight, begin, n, w);
    store_block(p.m, begin, n, m);
    store_block(p.v, begin, n, v);
    if (p.master) store_block(p.master, begin, n, w);
  });
}

void sgd(const OptimizerOperands& p, const SgdStep& s) {
  const float scale = value_or_one(p.grad_scale);
  const Tensor& full = p.master ? p.master : p.weight;
  for_each_block(full.numel(), [&](int64_t begin, int64_t n) {
    Block w_block, g_block, m_block;
    float* const w = w_block.load(full, begin, n);
    const float* const g = g_block.load(p.grad, begin, n);
    if (p.m) {
      float* const m = m_block.load(p.m, begin, n);
      sgd_block(w, g, m, n, scale, s);
      store_block(p.m, begin, n, m);
    } else {
      sgd_block(w, g, n, scale, s);
    }
    store_block(p.weight, begin, n, w);
    if (p.master) store_block(p.master, begin, n, w);
  });
}

}  // namespace capstan::cpu
