#pragma once

#include "ops/dropout_mask.h"
#include "tensor/queue.h"

namespace capstan {

// Linear layers of a dropped-out input, drop(x) = x / (1 - p) if the mask keeps the value, else 0:
// the same as dropout (ops/elementwise.h) followed by a linear layer (ops/linear.h), with the same
// mask.
//
// On cuda, bf16 operands of suitable shapes (cuda/product/dropped_linear.h) are dropped on the fly,
// in shared memory; otherwise in scratch of x's size, rounded to its type.

// y = factor · drop(x) wᵀ.
void dropped_linear(Queue& q, Tensor y_TO, Tensor x_TI, Tensor w_OI, float factor,
                    const DropoutMask& mask);

// dx += drop(dy w).
void dropped_linear_backward_data(Queue& q, Tensor dx_TI, Tensor dy_TO, Tensor w_OI,
                                  const DropoutMask& mask);

// dw += dyᵀ drop(x).
void dropped_linear_backward_weight(Queue& q, Tensor dw_OI, Tensor dy_TO, Tensor x_TI,
                                    const DropoutMask& mask);

}  // namespace capstan
