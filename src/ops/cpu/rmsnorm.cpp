#include "ops/cpu/rmsnorm.h"

#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

template <class X>
float rstd_of(const X* x, int64_t D, float eps) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t d = 0; d < D; ++d) sum += float(x[d]) * float(x[d]);
  return 1.0f / std::sqrt(sum / static_cast<float>(D) + eps);
}

template <class Y, class X, class W>
void scale_row(Y* y, const X* x, const W* w, float rstd, int64_t D) {
#pragma omp simd
  for (int64_t d = 0; d < D; ++d) store(y[d], float(x[d]) * rstd * float(w[d]));
}

template <class S, class X, class R>
void add_row(S* sum, const X* x, const R* residual, int64_t D) {
#pragma omp simd
  for (int64_t d = 0; d < D; ++d) store(sum[d], float(x[d]) + float(residual[d]));
}

}  // namespace

void rmsnorm(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w_D, float eps) {
  const int64_t D = w_D.dim(0), rows = D > 0 ? x.numel() / D : 0;
  float* const kept = rstd ? rstd.as<float>() : nullptr;
  with_types(y.dtype(), x.dtype(), w_D.dtype(), [&]<class Y, class X, class W>() {
    const Rows<Y> to(y);
    const Rows<X> from(x);
    const W* const w = w_D.as<W>();
    parallel_for(rows, grain_of(2 * D), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float s = rstd_of(from[r], D, eps);
        scale_row(to[r], from[r], w, s, D);
        if (kept != nullptr) kept[r] = s;
      }
    });
  });
}

void add_rmsnorm(const Tensor& y_TD, const Tensor& sum_TD, const Tensor& rstd_T, const Tensor& x_TD,
                 const Tensor& residual_TD, const Tensor& w_D, float eps) {
  const int64_t T = x_TD.dim(0), D = x_TD.dim(1);
  // Adds each row, then normalizes it from the cache: each half only needs loops for its own three
  // types; one loop would need all five.
  parallel_for(T, grain_of(4 * D), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      with_types(
          sum_TD.dtype(), x_TD.dtype(), residual_TD.dtype(), [&]<class S, class X, class R>() {
            add_row(sum_TD.as<S>() + t * D, x_TD.as<X>() + t * D, residual_TD.as<R>() + t * D, D);
          });
      with_types(y_TD.dtype(), sum_TD.dtype(), w_D.dtype(), [&]<class Y, class S, class W>() {
        const S* const sum = sum_TD.as<S>() + t * D;
        const float s = rstd_of(sum, D, eps);
        scale_row(y_TD.as<Y>() + t * D, sum, w_D.as<W>(), s, D);
        if (rstd_T) rstd_T.as<float>()[t] = s;
      });
    }
  });
}

}  // namespace capstan::cpu
