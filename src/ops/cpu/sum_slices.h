#pragma once

#include "ops/sum_slices.h"

namespace capstan::cpu {

void sum_slices(const Tensor& y, std::span<const Tensor> x, Write mode, int groups);

}  // namespace capstan::cpu
