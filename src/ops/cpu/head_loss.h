#pragma once

#include "ops/head_loss.h"

namespace capstan::cpu {

// Scratch: logits, inputs and input gradients of one chunk of tokens, and the product's panels.
struct HeadScratch {
  int64_t rows = 0;               // tokens in a chunk
  Tensor logits_RV, x_RD, dx_RD;  // f32; dx has no rows if it is not needed
  Tensor term_RK;                 // f32: the term's inputs, then their gradients
  Tensor tokens_R;                // i32: the token of each row
  Tensor losses_R;                // f64
  Tensor panels;
  Tensor stats;  // f64: those of all ranks (ops/head_stats.h); absent for one rank
};

// Maximum number of tokens whose logits exist at a time. Fewer tokens never need more: a plan for
// the largest batch covers the others.
int64_t head_chunk_rows(int64_t tokens, int64_t vocab);
// The size of chunks that many targets are divided into, with at most `rows` in each. They are of
// about equal size: a short last one would be a slow product.
int64_t head_chunk_size(int64_t targets, int64_t rows);

// All gradients are absent if only the loss is needed.
struct HeadOperands {
  Tensor x, w;
  HeadTerm term;
  Tensor dx, dw;
  HeadTerm d_term;
};
void head_loss(Tensor loss, const HeadOperands& operands, Tensor labels, float scale,
               const HeadRows& split, const HeadScratch& scratch);

}  // namespace capstan::cpu
