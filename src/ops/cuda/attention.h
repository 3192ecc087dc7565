#pragma once

#include "ops/attention.h"

namespace capstan::cuda {

// Attention in three ways: heads of at most 128 channels in tiles, in tensor cores for bf16 and
// outside of them for f32, and longer ones by a warp per query.
void attention(Queue& q, const Tensor& o_THD, const Tensor& lse_HT, const Tensor& q_THD,
               const Tensor& k_TKD, const Tensor& v_TKD, const AttentionMask& mask, float scale);

// The gradient of q, before it takes q's place, and Σ_d do·o of every query and head.
inline int64_t attention_backward_scratch(const Tensor& q_THD) {
  return q_THD.numel() * size_of(q_THD.dtype()) + kBufferAlignment +
         q_THD.dim(0) * q_THD.dim(1) * size_of(DType::f32);
}
void attention_backward(Queue& q, const Tensor& dq_THD, const Tensor& dk_TKD, const Tensor& dv_TKD,
                        const Tensor& do_THD, const Tensor& o_THD, const Tensor& lse_HT,
                        const Tensor& q_THD, const Tensor& k_TKD, const Tensor& v_TKD,
                        const AttentionMask& mask, float scale, const Tensor& scratch);

void attention_cached(Queue& q, const Tensor& o_THD, const Tensor& q_THD, const Tensor& k_CKD,
                      const Tensor& v_CKD, int64_t start, int64_t window, float scale);

}  // namespace capstan::cuda
