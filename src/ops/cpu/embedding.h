#pragma once

#include "tensor/tensor.h"

namespace capstan::cpu {

void embedding(const Tensor& y_TD, const Tensor& w_VD, const Tensor& ids_T);
void embedding_backward(const Tensor& dw_VD, const Tensor& dy_TD, const Tensor& ids_T);

}  // namespace capstan::cpu
