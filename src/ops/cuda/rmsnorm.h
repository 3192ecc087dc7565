#pragma once

#include "ops/rmsnorm.h"

namespace capstan::cuda {

void rmsnorm(Queue& q, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w_D,
             float eps);
void add_rmsnorm(Queue& q, const Tensor& y_TD, const Tensor& sum_TD, const Tensor& rstd_T,
                 const Tensor& x_TD, const Tensor& residual_TD, const Tensor& w_D, float eps);

// Like cpu::rmsnorm_partials: the number of partial sums of the weight's gradient; one per block,
// two blocks per SM.
inline int64_t rmsnorm_partials(int64_t rows) {
  constexpr int64_t kSmallest = 4, kMost = 264;
  const int64_t blocks = (rows + kSmallest - 1) / kSmallest;
  return blocks < kMost ? blocks : kMost;
}

// partial is f32 [rmsnorm_partials(rows), D]. dw may be absent; then partial is, too.
void rmsnorm_backward(Queue& q, const Tensor& dx, const Tensor& dw_D, const Tensor& dy,
                      const Tensor& x, const Tensor& w_D, const Tensor& rstd, Write mode,
                      const Tensor& partial);

}  // namespace capstan::cuda
