#pragma once

#include "ops/cuda/product/tile.cuh"

// The online softmax of attention's forward kernels, over tiles of scores in fragments.
namespace capstan::cuda {

// Over the four lanes that share a row.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ inline float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// A row's online softmax, in base 2.
struct Softmax {
  float most = -INFINITY, sum = 0;

  // WorkItems row r of the thread's scores into probabilities. Earlier results must be multiplied
  // by the return value.
  __device__ float take(int r, float (&scores)[kColumns][4], float scale) {
    float high = most;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      high = fmaxf(high, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
    high = row_max(high);
    // A row may have seen no key yet: avoid -inf minus -inf.
    const float shift = high == -INFINITY ? 0.0f : high * scale;
    // Two roundings, like `shift`: exactly 1 if the maximum is unchanged.
    const float shrink = power_of_two(__fmul_rn(most, scale) - shift);
    most = high;
    sum *= shrink;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        scores[j][i] = power_of_two(fmaf(scores[j][i], scale, -shift));
        sum += scores[j][i];
      }
    return shrink;
  }
  // Call when `sum` is complete for the row.
  __device__ float lse(float scale) const {
    return most * scale + logf(sum);
  }
};

}  // namespace capstan::cuda
