#pragma once

#include "ops/optimizer.h"

namespace capstan::cuda {

void adamw(Queue& q, const OptimizerOperands& p, const AdamWStep& s);
void adamw8bit(Queue& q, const OptimizerOperands& p, const MomentScales& absmax,
               const AdamWStep& s);
void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s);

inline constexpr int64_t kSumPartials = 1024;  // f64
void sum_squares(Queue& q, const Tensor& sum, const Tensor& x, const Tensor& partials);
void clip_scale(Queue& q, const Tensor& scale, const Tensor& sum, float max_norm);

}  // namespace capstan::cuda
