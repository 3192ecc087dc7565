#pragma once

#include "ops/head_loss.h"

namespace capstan::cpu {

// Scratch: logits, inputs and input gradients of one chunk of tokens, and the product's panels.
struct HeadScratch {
  int64_t rows = 0;               // tokens in a chunk
  Tensor logits_RV, x_RD, dx_RD;  // f32
  Tensor tokens_R;                // i32: which token each row is
  Tensor losses_R;                // f64
  Tensor panels;
};

// Tokens whose logits are held at a time, at most. Fewer tokens never need more: a plan for the
// largest batch serves the others.
int64_t head_chunk_rows(int64_t tokens, int64_t vocab);

// dx and dw are absent for the loss alone.
void head_loss(Tensor loss, Tensor dx, Tensor dw, Tensor x, Tensor w, Tensor labels, float scale,
               const HeadScratch& scratch);

}  // namespace capstan::cpu
