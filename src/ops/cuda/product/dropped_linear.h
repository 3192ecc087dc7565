#pragma once

#include <algorithm>
#include <initializer_list>

#include "ops/dropped_linear.h"

namespace capstan::cuda {

// The kernels' tiles.
inline constexpr int64_t kDroppedTokens = 64, kDroppedInputs = 128;

// Whether the kernels below take a map with this weight, or gradient of it, and operands that they
// read: few outputs, and inputs in whole tiles. Tensors must begin at multiples of 16 bytes, as all
// that come from an arena do.
inline bool drops_on_the_way(const Tensor& w_OI, std::initializer_list<Tensor> read) {
  bool narrow = true;
  for (const Tensor& t : read) narrow = narrow && t.dtype() == DType::bf16;
  bool takes = false;
  for (const int64_t outputs : {16, 32, 48, 64, 96}) takes = takes || w_OI.dim(0) == outputs;
  return narrow && takes && w_OI.dim(1) > 0 && w_OI.dim(1) % kDroppedInputs == 0;
}

// How sums of many terms are cut into parts that different blocks make, each of `length` terms but
// for the last: so many that all blocks run at once.
struct Parts {
  int64_t count, length;

  Parts(int64_t terms, int64_t unit, int64_t most) {
    const int64_t units = (terms + unit - 1) / unit;
    const int64_t each = (units + most - 1) / most;
    count = (units + each - 1) / each;
    length = each * unit;
  }
};
inline constexpr int64_t kDroppedBlocks = 264;  // two in each of a Hopper's multiprocessors

// Parts of a sum at most, for results that `blocks` blocks make; wide ones fill a multiprocessor.
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

// f32 values of scratch for the parts of y and of dw. Never less for more tokens.
inline int64_t dropped_linear_scratch(int64_t T, int64_t O) {
  const int64_t blocks = (T + kDroppedTokens - 1) / kDroppedTokens;
  return std::max(blocks, kDroppedBlocks) * kDroppedTokens * O;
}
inline int64_t dropped_weight_scratch(int64_t T, int64_t O, int64_t I) {
  const int64_t units = (T + kDroppedTokens - 1) / kDroppedTokens;
  return std::min(units, dropped_parts(I / kDroppedInputs, false)) * O * I;
}

void dropped_linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, float factor,
                    float p, const RandomKey& key, const Tensor& scratch);
void dropped_linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  float p, const RandomKey& key);
void dropped_linear_backward_weight(Queue& q, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                    float p, const RandomKey& key, const Tensor& scratch);

}  // namespace capstan::cuda
