#pragma once

#include <algorithm>
#include <initializer_list>

#include "ops/dropped_linear.h"

namespace capstan::cuda {

inline constexpr int64_t kMostDroppedOutputs = 96;  // what a block has room for
inline constexpr int64_t kDroppedTile = 64, kDroppedBlocks = 3 * 132;

// Whether the kernels below take a map with this weight, or gradient of it, and operands that they
// read: a few outputs, in whole fragments, and inputs in packs of eight.
inline bool drops_on_the_way(const Tensor& w_OI, std::initializer_list<Tensor> read) {
  const int64_t O = w_OI.dim(0);
  return O > 0 && O % 16 == 0 && O <= kMostDroppedOutputs && w_OI.dim(1) > 0 &&
         w_OI.dim(1) % 8 == 0 && std::all_of(read.begin(), read.end(), [](const Tensor& t) {
           return t.dtype() == DType::bf16;
         });
}

// How many parts the sums of `tiles` tiles of results are split into, so that they fill the GPU.
inline int64_t dropped_splits(int64_t tiles) {
  return std::max<int64_t>(1, kDroppedBlocks / std::max<int64_t>(1, tiles));
}
// f32 values of scratch for `rows` times `outputs` sums. Never less for more rows.
inline int64_t dropped_linear_scratch(int64_t rows, int64_t outputs) {
  const int64_t tiles = (rows + kDroppedTile - 1) / kDroppedTile;
  return std::max(tiles, kDroppedBlocks) * kDroppedTile * outputs;
}

void dropped_linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, float factor,
                    float p, const RandomKey& key, const Tensor& scratch);
void dropped_linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  float p, const RandomKey& key);
void dropped_linear_backward_weight(Queue& q, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                    float p, const RandomKey& key, const Tensor& scratch);

}  // namespace capstan::cuda
