#pragma once

#include "ops/optimizer.h"

namespace capstan::cpu {

void adamw(const OptimizerOperands& p, const AdamWStep& s);
void adamw8bit(const OptimizerOperands& p, const MomentScales& absmax, const AdamWStep& s);
void sgd(const OptimizerOperands& p, const SgdStep& s);
void sum_squares(const Tensor& sum, const Tensor& x);
void clip_scale(const Tensor& scale, const Tensor& sum, float max_norm, const Tensor& loss);

}  // namespace capstan::cpu
