#pragma once

#include "tensor/tensor.h"

namespace capstan::cpu {

void swiglu(const Tensor& y_TF, const Tensor& gu_T2F);
void swiglu_backward(const Tensor& dgu_T2F, const Tensor& dy_TF, const Tensor& gu_T2F);

}  // namespace capstan::cpu
