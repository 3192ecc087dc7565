#pragma once

#include "ops/sum_slices.h"

namespace capstan::cuda {

void sum_slices(Queue& q, const Tensor& y, std::span<const Tensor> x, Write mode, int groups);

}  // namespace capstan::cuda
