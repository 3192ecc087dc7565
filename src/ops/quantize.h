#pragma once

#include <array>

#include "ops/linear.h"
#include "ops/quantize_kind.h"

// Frozen matrices in a few bits per value, as bitsandbytes stores them.
namespace capstan {

// Rows of a matrix that are quantized as one tensor: each tensor of a checkpoint separately.
//
// 4 bits: the values, row after row, form blocks of 64 (the last may be shorter);
//   x[i] ≈ code[q[i]] * absmax[i / 64];  q[2i] is in the high half of packed[i], q[2i+1] in the
//   low.
// Double quantization: with offset = mean(absmax), in blocks of 256 absmax values,
//   absmax[b] ≈ map[absmax8[b]] * scale[b / 256] + offset,  map: the 256 values of 8-bit dynamic
//   quantization (Dettmers, 2015).
// int8: x[r,c] ≈ packed[r,c] * absmax[r] / 127, packed as two's complement.
struct QuantizedPart {
  int64_t first_row = 0, rows = 0;
  Tensor packed;  // u8
  Tensor absmax;  // f32, or u8 with double quantization
  Tensor scale;   // f32, only with double quantization: one per 256 blocks, then the offset
};

// A matrix [O, I] of one to three parts, stacked by rows.
struct QuantizedMatrix {
  Quantize kind = Quantize::none;
  Shape shape;
  int count = 0;
  std::array<QuantizedPart, 3> parts;

  int64_t nbytes() const;
};

// Number of values in the tensors of a part of `rows` x `cols` values; scale is 0 if there is none.
struct QuantizedSizes {
  int64_t packed = 0, absmax = 0, scale = 0;
  DType absmax_type = DType::f32;
};
QuantizedSizes quantized_sizes(Quantize kind, int64_t rows, int64_t cols);

// Quantizes x (f32, bf16 or f16, [the part's rows, I]) into part `part`. A NaN in x makes its block
// NaN.
void quantize(Queue& q, const QuantizedMatrix& to, int part, Tensor x);

// y [n, I] = rows first … first + n - 1, dequantized in f32, rounded to y's type.
void dequantize(Queue& q, Tensor y, const QuantizedMatrix& from, int64_t first);

// Like the ops of these names in ops/linear.h. The matrix is dequantized in blocks that stay in
// cache: a full copy never exists.
void linear(Queue& q, Tensor y_TO, Tensor x_TI, const QuantizedMatrix& w_OI, Tensor b_O,
            const ThinTerms& terms = {});
void linear_backward_data(Queue& q, Tensor dx_TI, Tensor dy_TO, const QuantizedMatrix& w_OI);

}  // namespace capstan
