#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/head_loss.h"

namespace capstan::cuda {

// The i-th target token, or -1 past the last. T: the number of all tokens.
__device__ inline int token_at(const int32_t* order, int64_t i, int64_t T) {
  if (order == nullptr) return static_cast<int>(i);
  return i < order[T] ? order[i] : -1;
}

}  // namespace capstan::cuda
