#pragma once

#include <array>
#include <string_view>

#include "ops/linear.h"

// Frozen matrices in a few bits per value, as bitsandbytes stores them.
namespace capstan {

// nf4: the 16 values are quantiles of a normal; fp4: they have a sign, two bits of exponent and one
// of mantissa. 4.5 bits per value, or 4.127 with double quantization. int8: 255 even steps.
enum class Quantize : uint8_t { none, nf4, nf4_dq, fp4, fp4_dq, int8 };
std::string_view name_of(Quantize kind);
// "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.fp4-dq", "bnb.int8" or "bnb.int8-training"; throws
// Fault::usage, listing them.
Quantize parse_quantize(std::string_view name);

// Rows of a matrix that are quantized as one tensor: each tensor of a checkpoint on its own.
//
// 4 bits: the values, row after row, make blocks of 64, of which the last may be shorter;
//   x[i] ≈ code[q[i]] * absmax[i / 64];  q[2i] is in the high half of packed[i], q[2i+1] in the
//   low.
// Double quantization: with offset = mean(absmax), blocks of 256 of those,
//   absmax[b] ≈ map[absmax8[b]] * scale[b / 256] + offset,  map: the 256 values of 8-bit dynamic
//   quantization (Dettmers, 2015).
// int8: x[r,c] ≈ packed[r,c] * absmax[r] / 127, packed as two's complement.
struct QuantizedPart {
  int64_t first_row = 0, rows = 0;
  Tensor packed;  // u8
  Tensor absmax;  // f32, or u8 with double quantization
  Tensor scale;   // f32, with double quantization: one per 256 blocks, then the offset
};

// A matrix [O, I] of one to three parts, one after the other.
struct QuantizedMatrix {
  Quantize kind = Quantize::none;
  Shape shape;
  int count = 0;
  std::array<QuantizedPart, 3> parts;

  int64_t nbytes() const;
};

// What the tensors of a part of `rows` x `cols` values hold; scale is 0 where there is none.
struct QuantizedSizes {
  int64_t packed = 0, absmax = 0, scale = 0;
  DType absmax_type = DType::f32;
};
QuantizedSizes quantized_sizes(Quantize kind, int64_t rows, int64_t cols);

// Fills the tensors of part `part` from x: f32, bf16 or f16, [the part's rows, I]. A NaN in x makes
// NaN of its block.
void quantize(Queue& q, const QuantizedMatrix& to, int part, Tensor x);

// y [n, I] = rows first … first + n - 1, in f32, rounded to y's type.
void dequantize(Queue& q, Tensor y, const QuantizedMatrix& from, int64_t first);

// As the ops of these names in ops/linear.h. The matrix is widened in blocks that stay in cache: no
// copy of it exists at any time.
void linear(Queue& q, Tensor y_TO, Tensor x_TI, const QuantizedMatrix& w_OI, Tensor b_O,
            const ThinTerms& terms = {});
void linear_backward_data(Queue& q, Tensor dx_TI, Tensor dy_TO, const QuantizedMatrix& w_OI);

}  // namespace capstan
