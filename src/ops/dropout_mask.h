#pragma once

#include <cstdint>

#include "ops/random_key.h"

namespace capstan {

// Which values of an activation x [T, I] dropout keeps. That depends on the key, on the token's
// ordinal and on the column, but neither on the micro-batch that holds the token nor on the columns
// that are present. Value (t, c) uses half(ordinals[t] * columns + first_column + c) of the key's
// stream (ops/keep.h).
struct DropoutMask {
  float p = 0;  // the fraction that is dropped, 0 <= p < 1
  RandomKey key;
  Tensor ordinals_T{};       // i32: each token's place in the step. Absent: 0, 1, 2, …
  int64_t columns = 0;       // of the whole activation; 0: those of x
  int64_t first_column = 0;  // x has its columns from here on

  int64_t columns_of(const Tensor& x_TI) const { return columns > 0 ? columns : x_TI.dim(1); }
};

}  // namespace capstan
