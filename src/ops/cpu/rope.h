#pragma once

#include "ops/rope.h"

namespace capstan::cpu {

void rope(const Tensor& x_THD, const Tensor& cos_PD, const Tensor& sin_PD,
          const Tensor& positions_T, Rotation rotation);

}  // namespace capstan::cpu
