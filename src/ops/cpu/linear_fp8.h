#pragma once

#include "ops/linear.h"

namespace capstan::cpu {

// Rounds factors to their formats, stores them as f32 in the scratch, and multiplies those.
int64_t linear_fp8_scratch(const Tensor& y, const Tensor& x, const Tensor& w);
int64_t linear_fp8_backward_scratch(const Tensor& dx, const Tensor& dw, const Tensor& dy);

void linear_fp8(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                const Tensor& amax, const Tensor& scratch);
void linear_fp8_backward(const Tensor& dx, const Tensor& dw, const Tensor& db, const Tensor& dy,
                         const Tensor& x, const Tensor& w, const Tensor& amax, Write mode,
                         const Tensor& scratch);

}  // namespace capstan::cpu
