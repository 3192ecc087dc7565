#include "ops/cpu/swiglu.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vmath.h"

namespace capstan::cpu {
namespace {

template <class Y, class X>
void swiglu_row(Y* y, const X* g, const X* u, int64_t F) {
#pragma omp simd
  for (int64_t i = 0; i < F; ++i) {
    const float gate = float(g[i]);
    store(y[i], gate * sigmoid_f32(gate) * float(u[i]));
  }
}

// d silu(g) / dg = s + g s (1 - s), s = sigmoid(g). Value i of g and u is read before value i of dg
// and du is written, so these may alias.
template <class DX, class DY, class X>
void swiglu_backward_row(DX* dg, DX* du, const DY* dy, const X* g, const X* u, int64_t F) {
#pragma omp simd
  for (int64_t i = 0; i < F; ++i) {
    const float gate = float(g[i]), up = float(u[i]), d = float(dy[i]);
    const float s = sigmoid_f32(gate);
    store(dg[i], d * up * (s + gate * s * (1.0f - s)));
    store(du[i], d * gate * s);
  }
}

}  // namespace

void swiglu(const Tensor& y_TF, const Tensor& gu_T2F) {
  const int64_t T = y_TF.dim(0), F = y_TF.dim(1);
  with_types(y_TF.dtype(), gu_T2F.dtype(), [&]<class Y, class X>() {
    Y* const y = y_TF.as<Y>();
    const X* const gu = gu_T2F.as<X>();
    parallel_for(T, grain_of(3 * F), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t)
        swiglu_row(y + t * F, gu + t * 2 * F, gu + t * 2 * F + F, F);
    });
  });
}

void swiglu_backward(const Tensor& dgu_T2F, const Tensor& dy_TF, const Tensor& gu_T2F) {
  const int64_t T = dy_TF.dim(0), F = dy_TF.dim(1);
  with_types(dgu_T2F.dtype(), dy_TF.dtype(), gu_T2F.dtype(), [&]<class DX, class DY, class X>() {
    DX* const dgu = dgu_T2F.as<DX>();
    const DY* const dy = dy_TF.as<DY>();
    const X* const gu = gu_T2F.as<X>();
    parallel_for(T, grain_of(5 * F), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        DX* const to = dgu + t * 2 * F;
        const X* const from = gu + t * 2 * F;
        swiglu_backward_row(to, to + F, dy + t * F, from, from + F, F);
      }
    });
  });
}

}  // namespace capstan::cpu
