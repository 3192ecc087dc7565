#pragma once

#include <algorithm>
#include <initializer_list>

#include "ops/dropped_linear.h"

namespace capstan::cuda {

// The kernels' tiles.
inline constexpr int64_t kDroppedTokens = 64, kDroppedInputs = 128;

// Whether the kernels below support a layer with this weight, or its gradient, its mask, and the
// operands that they read: few outputs, inputs in whole tiles, and eight values of a row per draw.
// Tensors must be aligned to 16 bytes, as all from an arena are.
inline bool drops_on_the_way(const Tensor& w_OI, const DropoutMask& mask,
                             std::initializer_list<Tensor> read) {
  bool narrow = true;
  for (const Tensor& t : read) narrow = narrow && t.dtype() == DType::bf16;
  bool takes = false;
  for (const int64_t outputs : {16, 32, 48, 64, 96}) takes = takes || w_OI.dim(0) == outputs;
  if (mask.columns % 8 != 0 || mask.first_column % 8 != 0) return false;
  return narrow && takes && w_OI.dim(1) > 0 && w_OI.dim(1) % kDroppedInputs == 0;
}

// Splits long sums into parts for different blocks, each of `length` terms except the last: as many
// parts as blocks can run at once.
struct Parts {
  int64_t count, length;

  Parts(int64_t terms, int64_t unit, int64_t most) {
    const int64_t units = (terms + unit - 1) / unit;
    const int64_t each = (units + most - 1) / most;
    count = (units + each - 1) / each;
    length = each * unit;
  }
};
inline constexpr int64_t kDroppedBlocks = 264;  // two per SM of a Hopper GPU

// Maximum number of parts of a sum, for results computed by `blocks` blocks; wide ones fill an SM.
inline int64_t dropped_parts(int64_t blocks, bool wide) {
  return std::max<int64_t>(1, kDroppedBlocks / (wide ? 2 : 1) / blocks);
}
inline Parts dropped_linear_parts(int64_t T, int64_t O, int64_t I) {
  const int64_t blocks = (T + kDroppedTokens - 1) / kDroppedTokens;
  return {I, kDroppedInputs, dropped_parts(blocks, O > 32)};
}
inline Parts dropped_weight_parts(int64_t T, int64_t I) {
  return {T, kDroppedTokens, dropped_parts(I / kDroppedInputs, false)};
}

// f32 values of scratch for the parts of y and of dw. Never decreases with more tokens.
inline int64_t dropped_linear_scratch(int64_t T, int64_t O) {
  const int64_t blocks = (T + kDroppedTokens - 1) / kDroppedTokens;
  return std::max(blocks, kDroppedBlocks) * kDroppedTokens * O;
}
inline int64_t dropped_weight_scratch(int64_t T, int64_t O, int64_t I) {
  const int64_t units = (T + kDroppedTokens - 1) / kDroppedTokens;
  return std::min(units, dropped_parts(I / kDroppedInputs, false)) * O * I;
}

void dropped_linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, float factor,
                    const DropoutMask& mask, const Tensor& scratch);
void dropped_linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  const DropoutMask& mask);
void dropped_linear_backward_weight(Queue& q, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                    const DropoutMask& mask, const Tensor& scratch);

}  // namespace capstan::cuda
