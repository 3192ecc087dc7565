#pragma once

#include "ops/optimizer.h"

namespace capstan::cuda {

void adamw(Queue& q, std::span<const AdamWParameter> all, const Tensor& not_finite);
void adamw8bit(Queue& q, std::span<const AdamW8bitParameter> all, const Tensor& not_finite);
void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s, const Tensor& not_finite);

// Number of values whose squares one block sums; a tensor has one f64 in `partials` per block.
inline constexpr int64_t kSumTile = 1 << 16;
constexpr int64_t sum_partials(int64_t n) {
  return (n + kSumTile - 1) / kSumTile;
}
void sum_squares(Queue& q, const Tensor& sum, std::span<const Tensor> all, const Tensor& partials);
void partial_squares(Queue& q, const Tensor& partials, std::span<const Tensor> all);
void add_partials(Queue& q, const Tensor& sum, const Tensor& partials);
void clip_scale(Queue& q, const Tensor& scale, const Tensor& sum, float max_norm,
                const Tensor& loss, double times);

}  // namespace capstan::cuda
