#pragma once

#include "tensor/queue.h"

namespace capstan {

// y = silu(g) * u, silu(g) = g / (1 + exp(-g)). gu has g in its first F columns and u in the rest,
// as one product computes them.
void swiglu(Queue& q, Tensor y_TF, Tensor gu_T2F);

// dgu from dy. dgu may alias gu.
void swiglu_backward(Queue& q, Tensor dgu_T2F, Tensor dy_TF, Tensor gu_T2F);

}  // namespace capstan
