#pragma once

#include <array>

#include "ops/quantize.h"

namespace capstan::cpu {

// The 16 values of nf4 or fp4, by code.
const std::array<float, 16>& code_values(Quantize kind);

void quantize(Quantize kind, const QuantizedPart& part, const Tensor& x);
void dequantize(const Tensor& y, const QuantizedMatrix& from, int64_t first);

// Columns col … col + n - 1 of a row, as f32.
void dequantize_row(const QuantizedMatrix& m, int64_t row, int64_t col, int64_t n, float* out);

}  // namespace capstan::cpu
