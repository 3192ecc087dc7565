#pragma once

#include "ops/swiglu.h"

namespace capstan::cuda {

void swiglu(Queue& q, const Tensor& y_TF, const Tensor& gu_T2F);
void swiglu_backward(Queue& q, const Tensor& dgu_T2F, const Tensor& dy_TF, const Tensor& gu_T2F);

}  // namespace capstan::cuda
