#pragma once

#include "ops/thin_term.h"

namespace capstan {

enum class Write : bool { replace, add };  // y = … or y += …

// y = factor · x wᵀ + b, with w in Hugging Face's layout ([outputs, inputs]). b may be absent. y
// and x may have row strides.
void linear(Queue& q, Tensor y_TO, Tensor x_TI, Tensor w_OI, Tensor b_O,
            Write mode = Write::replace, float factor = 1);

// y = x wᵀ + b + the terms. If one kernel does all of it (bf16 on a Hopper GPU), y is rounded once;
// otherwise once more for each term.
void linear(Queue& q, Tensor y_TO, Tensor x_TI, Tensor w_OI, Tensor b_O, const ThinTerms& terms);

// dx = factor · dy w, or dx += the same. dx and dy may have row strides.
void linear_backward_data(Queue& q, Tensor dx_TI, Tensor dy_TO, Tensor w_OI,
                          Write mode = Write::replace, float factor = 1);

// dw += dyᵀ x, or dw = dyᵀ x, and db += Σ_t dy[t,:] if db is present. dy and x may have row
// strides.
void linear_backward_weight(Queue& q, Tensor dw_OI, Tensor db_O, Tensor dy_TO, Tensor x_TI,
                            Write mode = Write::add);

}  // namespace capstan
