#pragma once

#include "ops/attention.h"

namespace capstan::cpu {

// Bytes of scratch, for all threads. `keys` is the longest document, or the keys in the cache.
int64_t attention_scratch(int64_t keys, int64_t head_dim, DType dtype);
int64_t attention_backward_scratch(int64_t keys, int64_t head_dim, DType dtype);

void attention(Tensor o, Tensor lse, Tensor q, Tensor k, Tensor v, const AttentionMask& mask,
               float scale, Tensor scratch);
void attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor d_o, Tensor o, Tensor lse, Tensor q,
                        Tensor k, Tensor v, const AttentionMask& mask, float scale, Tensor scratch);
void attention_cached(Tensor o, Tensor q, Tensor k, Tensor v, int64_t start, int64_t window,
                      float scale, Tensor scratch);

}  // namespace capstan::cpu
