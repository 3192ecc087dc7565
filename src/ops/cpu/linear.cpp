#include "ops/cpu/linear.h"

#include <algorithm>

#include "base/parallel.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {

// Each thread owns columns and visits the rows in order: the sum does not depend on the number of
// threads.
void add_column_sums(Tensor db, Tensor dy) {
  constexpr int64_t kStripe = 64;
  with_types(db.dtype(), dy.dtype(), [&]<class B, class Y>() {
    parallel_for(dy.dim(1), kStripe, [&](int64_t begin, int64_t end) {
      for (int64_t c0 = begin; c0 < end; c0 += kStripe) {
        const int64_t width = std::min(kStripe, end - c0);
        float sums[kStripe] = {};
        for (int64_t t = 0; t < dy.dim(0); ++t) {
          const Y* row = dy.as<Y>() + t * dy.stride(0) + c0;
#pragma omp simd
          for (int64_t i = 0; i < width; ++i) sums[i] += static_cast<float>(row[i]);
        }
        B* out = db.as<B>() + c0;
        for (int64_t i = 0; i < width; ++i) out[i] = B(static_cast<float>(out[i]) + sums[i]);
      }
    });
  });
}

void linear(Tensor y, Tensor x, Tensor w, Tensor b, Write mode, float factor, Tensor scratch) {
  gemm(x.dim(0), w.dim(0), w.dim(1), matrix(x), matrix(w, true), y.raw(), y.dtype(), y.stride(0),
       mode == Write::add, scratch.raw(), b, factor);
}

void add_terms(const Tensor& y, const ThinTerms& terms, const Tensor& scratch) {
  for (const ThinTerm& t : terms)
    linear(y.cols(t.first, t.w_OR.dim(0)), t.x_TR, t.w_OR, {}, Write::add, 1, scratch);
}

void linear_backward_data(Tensor dx, Tensor dy, Tensor w, Write mode, float factor,
                          Tensor scratch) {
  gemm(dy.dim(0), w.dim(1), w.dim(0), matrix(dy), matrix(w), dx.raw(), dx.dtype(), dx.stride(0),
       mode == Write::add, scratch.raw(), {}, factor);
}

void linear_backward_weight(Tensor dw, Tensor db, Tensor dy, Tensor x, Write mode, Tensor scratch) {
  gemm(dy.dim(1), x.dim(1), dy.dim(0), matrix(dy, true), matrix(x), dw.raw(), dw.dtype(),
       dw.stride(0), mode == Write::add, scratch.raw());
  if (db) add_column_sums(db, dy);
}

}  // namespace capstan::cpu
