#pragma once

#include "ops/rmsnorm.h"

namespace capstan::cpu {

void rmsnorm(const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w_D, float eps);
void add_rmsnorm(const Tensor& y_TD, const Tensor& sum_TD, const Tensor& rstd_T, const Tensor& x_TD,
                 const Tensor& residual_TD, const Tensor& w_D, float eps);

// The weight's gradient is summed over blocks of rows, then over the blocks. Number of blocks:
// depends only on the rows and never decreases with them, so that a smaller batch fits the scratch
// planned for a larger one.
inline int64_t rmsnorm_partials(int64_t rows) {
  constexpr int64_t kSmallest = 8, kMost = 64;
  const int64_t blocks = (rows + kSmallest - 1) / kSmallest;
  return blocks < kMost ? blocks : kMost;
}

// partial is f32 [rmsnorm_partials(rows), D]. dw may be absent; then partial is, too.
void rmsnorm_backward(const Tensor& dx, const Tensor& dw_D, const Tensor& dy, const Tensor& x,
                      const Tensor& w_D, const Tensor& rstd, Write mode, const Tensor& partial);

}  // namespace capstan::cpu
