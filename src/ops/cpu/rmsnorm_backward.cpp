#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/rmsnorm.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

// Σ dy w x over a row.
template <class DY, class X, class W>
[[gnu::noinline]] float dot_row(const DY* dy, const X* x, const W* w, int64_t D) {
  float dot = 0;
#pragma omp simd reduction(+ : dot)
  for (int64_t d = 0; d < D; ++d) dot += float(dy[d]) * float(w[d]) * float(x[d]);
  return dot;
}

template <class DY, class X>
[[gnu::noinline]] void add_dw_row(float* dw, const DY* dy, const X* x, float rstd, int64_t D) {
#pragma omp simd
  for (int64_t d = 0; d < D; ++d) dw[d] += float(dy[d]) * (float(x[d]) * rstd);
}

// dx[d] = rstd dy[d] w[d] - c x[d]; c is the rest of the formula. dx may alias dy.
template <bool kAdd, class DX, class DY, class X, class W>
[[gnu::noinline]] void dx_row(DX* dx, const DY* dy, const X* x, const W* w, float rstd, float c,
                              int64_t D) {
#pragma omp simd
  for (int64_t d = 0; d < D; ++d) {
    const float g = rstd * float(dy[d]) * float(w[d]) - c * float(x[d]);
    store(dx[d], kAdd ? float(dx[d]) + g : g);
  }
}

// Adds the blocks' sums to dw, in the order of the blocks.
void fold_dw(const Tensor& dw_D, const float* partial, int64_t blocks) {
  constexpr int64_t kStripe = 64;
  const int64_t D = dw_D.dim(0), stripes = (D + kStripe - 1) / kStripe;
  with_type(dw_D.dtype(), [&]<class W>() {
    W* const dw = dw_D.as<W>();
    parallel_for(stripes, grain_of(blocks * kStripe), [&](int64_t begin, int64_t end) {
      for (int64_t s = begin; s < end; ++s) {
        const int64_t first = s * kStripe, n = std::min(kStripe, D - first);
        float sum[kStripe] = {};
        for (int64_t b = 0; b < blocks; ++b)
#pragma omp simd
          for (int64_t d = 0; d < n; ++d) sum[d] += partial[b * D + first + d];
#pragma omp simd
        for (int64_t d = 0; d < n; ++d) store(dw[first + d], float(dw[first + d]) + sum[d]);
      }
    });
  });
}

template <bool kAdd, class DX, class DY, class X, class W>
void backward(const Tensor& dx_, const Tensor& dy_, const Tensor& x_, const Tensor& w_D,
              const float* rstd, float* partial) {
  const Rows<DX> dx(dx_);
  const Rows<DY> dy(dy_);
  const Rows<X> x(x_);
  const W* const w = w_D.as<W>();
  const int64_t D = w_D.dim(0), rows = x_.numel() / D, blocks = rmsnorm_partials(rows);
  parallel_for(blocks, grain_of(3 * D * (rows / blocks)), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* const dw = partial == nullptr ? nullptr : partial + b * D;
      if (dw != nullptr) std::fill_n(dw, D, 0.0f);
      for (int64_t r = rows * b / blocks; r < rows * (b + 1) / blocks; ++r) {
        const float s = rstd[r];
        const float c = s * s * s * dot_row(dy[r], x[r], w, D) / static_cast<float>(D);
        if (dw != nullptr) add_dw_row(dw, dy[r], x[r], s, D);
        dx_row<kAdd>(dx[r], dy[r], x[r], w, s, c, D);
      }
    }
  });
}

}  // namespace

void rmsnorm_backward(const Tensor& dx, const Tensor& dw_D, const Tensor& dy, const Tensor& x,
                      const Tensor& w_D, const Tensor& rstd, Write mode, const Tensor& partial) {
  if (x.numel() == 0) return;
  const float* const s = rstd.as<float>();
  float* const sums = dw_D ? partial.as<float>() : nullptr;
  with_types(dx.dtype(), dy.dtype(), x.dtype(), w_D.dtype(),
             [&]<class DX, class DY, class X, class W>() {
               if (mode == Write::add)
                 backward<true, DX, DY, X, W>(dx, dy, x, w_D, s, sums);
               else
                 backward<false, DX, DY, X, W>(dx, dy, x, w_D, s, sums);
             });
  if (dw_D) fold_dw(dw_D, sums, partial.dim(0));
}

}  // namespace capstan::cpu
