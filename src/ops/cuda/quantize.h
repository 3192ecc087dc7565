#pragma once

#include <algorithm>

#include "ops/quantize.h"

namespace capstan::cuda {

// On the host, bit for bit like cpu: it happens once, when a model is loaded.
void quantize(Queue& q, Quantize kind, const QuantizedPart& part, const Tensor& x);
void dequantize(Queue& q, const Tensor& y, const QuantizedMatrix& from, int64_t first);

// Rows of the matrix that are dequantized at a time for a product: at most 32 Mi values, so that a
// full copy of a model never exists.
inline int64_t quantized_chunk_rows(const Shape& shape) {
  constexpr int64_t kValues = int64_t{1} << 25, kMultiple = 128;
  return std::min(shape[0], std::max(kMultiple, kValues / shape[1] / kMultiple * kMultiple));
}
// chunk is [quantized_chunk_rows, I], in x's and dy's type; scratch as for the product with it.
void linear(Queue& q, const Tensor& y_TO, const Tensor& x_TI, const QuantizedMatrix& w_OI,
            const Tensor& b_O, const ThinTerms& terms, const Tensor& chunk, const Tensor& scratch);
void linear_backward_data(Queue& q, const Tensor& dx_TI, const Tensor& dy_TO,
                          const QuantizedMatrix& w_OI, const Tensor& chunk, const Tensor& scratch);

}  // namespace capstan::cuda
