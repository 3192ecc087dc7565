#pragma once

#include "ops/rope.h"

namespace capstan::cuda {

void rope(Queue& q, const Tensor& x_THD, const Tensor& cos_PD, const Tensor& sin_PD,
          const Tensor& positions_T, Rotation rotation);

}  // namespace capstan::cuda
