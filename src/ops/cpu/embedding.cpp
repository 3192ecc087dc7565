#include "ops/cpu/embedding.h"

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {

void embedding(const Tensor& y_TD, const Tensor& w_VD, const Tensor& ids_T) {
  const int64_t T = y_TD.dim(0), D = y_TD.dim(1);
  const int32_t* ids = ids_T.as<int32_t>();
  with_types(y_TD.dtype(), w_VD.dtype(), [&]<class Y, class W>() {
    Y* const y = y_TD.as<Y>();
    const W* const w = w_VD.as<W>();
    parallel_for(T, grain_of(D), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        Y* const to = y + t * D;
        const W* const from = w + ids[t] * D;
#pragma omp simd
        for (int64_t d = 0; d < D; ++d) store(to[d], float(from[d]));
      }
    });
  });
}

// Each thread owns some columns and walks all tokens in order, so that repeated ids meet no other
// thread and add up in the same order for any number of threads.
void embedding_backward(const Tensor& dw_VD, const Tensor& dy_TD, const Tensor& ids_T) {
  const int64_t T = dy_TD.dim(0), D = dy_TD.dim(1);
  const int32_t* ids = ids_T.as<int32_t>();
  constexpr int64_t kStripe = 32;  // columns: no two threads write to one cache line, even of bf16
  const int64_t grain = kStripe * grain_of(T * kStripe);
  with_types(dw_VD.dtype(), dy_TD.dtype(), [&]<class W, class Y>() {
    W* const dw = dw_VD.as<W>();
    const Y* const dy = dy_TD.as<Y>();
    parallel_for(D, grain, [&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < T; ++t) {
        W* const to = dw + ids[t] * D;
        const Y* const from = dy + t * D;
#pragma omp simd
        for (int64_t d = begin; d < end; ++d) store(to[d], float(to[d]) + float(from[d]));
      }
    });
  });
}

}  // namespace capstan::cpu
