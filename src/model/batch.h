#pragma once

#include "ops/attention.h"

namespace capstan {

// A micro-batch on the device: documents concatenated in one row of T tokens. A padded batch has
// the same layout, with documents of equal length whose last labels are kIgnore.
struct Batch {
  Tensor ids_T;        // i32, below the vocabulary
  Tensor labels_T;     // i32: the token to predict at t (already shifted), or kIgnore
  Tensor positions_T;  // i32: from 0 in each document
  // i32: place of the token among those of the step, padding not counted. Absent without dropout.
  Tensor ordinals_T{};
  AttentionMask mask;
  int64_t targets = -1;  // labels that are not kIgnore, for statistics; -1: unknown

  int64_t tokens() const { return ids_T.dim(0); }
};

}  // namespace capstan
