#pragma once

#include <algorithm>
#include <bit>

#include "ops/cuda/product/gemm.h"
#include "ops/linear.h"

namespace capstan::cuda {

// Tensor cores need FP8 factors whose rows run along the summed dimension. dw sums over tokens, so
// dy and x are transposed for it, with zeros up to a multiple of 16 tokens.
inline int64_t turned_rows(int64_t rows) {
  return (rows + 15) / 16 * 16;
}
// Stride between rows of a transposed factor: rounded up to four significant bits, because the
// algorithm of a product is measured separately for every stride.
inline int64_t turned_stride(int64_t rows) {
  const auto n = static_cast<uint64_t>(turned_rows(rows));
  const uint64_t step = std::max<uint64_t>(16, std::bit_floor(n) >> 3);
  return static_cast<int64_t>((n + step - 1) / step * step);
}

// Bytes: the scales of an op, each aligned for any access.
inline constexpr int64_t kFp8Scale = 64, kFp8Scales = 4 * kFp8Scale;

// cuBLASLt's workspace, the scales, and the 8-bit factors, each once in every layout needed.
inline int64_t linear_fp8_scratch(const Tensor& x, const Tensor& w) {
  return kGemmWorkspace + kFp8Scales + aligned_to_buffers(x.numel()) +
         aligned_to_buffers(w.numel());
}
inline int64_t linear_fp8_backward_scratch(const Tensor& dx, const Tensor& dy, const Tensor& x) {
  const int64_t stride = turned_stride(x.dim(0)), O = dy.dim(1), I = x.dim(1);
  const int64_t plain_dy = dx ? aligned_to_buffers(dy.numel()) : 0;
  const int64_t x_then_w = aligned_to_buffers(I * std::max(stride, dx ? O : 0));
  return kGemmWorkspace + kFp8Scales + plain_dy + aligned_to_buffers(O * stride) + x_then_w;
}

void linear_fp8(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                const Tensor& amax, const Tensor& scratch);
void linear_fp8_backward(Queue& q, const Tensor& dx, const Tensor& dw, const Tensor& db,
                         const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& amax,
                         Write mode, const Tensor& scratch);

}  // namespace capstan::cuda
