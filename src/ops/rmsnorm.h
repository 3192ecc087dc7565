#pragma once

#include "ops/linear.h"
#include "tensor/queue.h"

namespace capstan {

// y[…,d] = x[…,d] * w[d] * rstd[…],  rstd = 1 / sqrt(mean_d(x^2) + eps).
//
// x and y are [T, D], or [T, H, D] for a norm within each head (qk-norm), with strides in T and H.
// rstd is f32, one value per normalised row, kept for the backward pass; it may be absent.
// y may alias x.
void rmsnorm(Queue& q, Tensor y, Tensor rstd, Tensor x, Tensor w_D, float eps);

// sum = x + residual, then y = rmsnorm(sum): fused with the residual add. The norm uses the sum as
// stored (rounded to its type). sum may alias residual or x.
void add_rmsnorm(Queue& q, Tensor y_TD, Tensor sum_TD, Tensor rstd_T, Tensor x_TD,
                 Tensor residual_TD, Tensor w_D, float eps);

// dx = rstd * (dy * w - x * rstd^2 * mean_d(dy * w * x)), replaced or added;
// dw[d] += Σ dy[…,d] * x[…,d] * rstd[…]. With Write::replace dx may alias dy or x; dw is then
// computed first. Shapes and strides as for rmsnorm.
void rmsnorm_backward(Queue& q, Tensor dx, Tensor dw_D, Tensor dy, Tensor x, Tensor w_D,
                      Tensor rstd, Write mode);

}  // namespace capstan
