#pragma once

#include "ops/linear.h"

namespace capstan::cpu {

// `scratch` holds gemm_scratch bytes for the types of the product.
void linear(Tensor y, Tensor x, Tensor w, Tensor b, Write mode, float factor, Tensor scratch);
void linear_backward_data(Tensor dx, Tensor dy, Tensor w, Write mode, float factor, Tensor scratch);
void linear_backward_weight(Tensor dw, Tensor db, Tensor dy, Tensor x, Write mode, Tensor scratch);

// Adds the terms to y.
void add_terms(const Tensor& y, const ThinTerms& terms, const Tensor& scratch);

// db += Σ_t dy[t,:].
void add_column_sums(Tensor db, Tensor dy);

}  // namespace capstan::cpu
