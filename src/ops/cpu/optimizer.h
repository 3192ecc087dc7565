#pragma once

#include "ops/optimizer.h"

namespace capstan::cpu {

// As the front end's; `not_finite` may be absent.
void adamw(const OptimizerOperands& p, const AdamWStep& s, const Tensor& not_finite);
void adamw8bit(const OptimizerOperands& p, const MomentScales& absmax, const AdamWStep& s,
               const Tensor& not_finite);
void sgd(const OptimizerOperands& p, const SgdStep& s, const Tensor& not_finite);
void sum_squares(const Tensor& sum, const Tensor& x);
int64_t sum_partials(int64_t n);
void partial_squares(const Tensor& partials, std::span<const Tensor> all);
void add_partials(const Tensor& sum, const Tensor& partials);
void clip_scale(const Tensor& scale, const Tensor& sum, float max_norm, const Tensor& loss,
                double times);

}  // namespace capstan::cpu
