#pragma once

#include "ops/attention.h"

namespace capstan::cuda {

// Attention of heads of at most 128 channels in tiles, for bf16 in tensor cores (on Hopper by its
// own instructions), and of longer ones by a warp per query. In tensor cores a NaN can reach other
// documents that share a tile of 64 tokens with it, as zero times NaN.
void attention(Queue& q, const Tensor& o_THD, const Tensor& lse_HT, const Tensor& q_THD,
               const Tensor& k_TKD, const Tensor& v_TKD, const AttentionMask& mask, float scale);

// Σ_d do·o of every query and head, and the gradients that are computed first: those of keys and
// values where several heads share them, that of the queries where not.
inline bool keys_first(const Tensor& q_THD, const Tensor& k_TKD) {
  return k_TKD.dim(1) < q_THD.dim(1);
}
inline int64_t attention_backward_scratch(const Tensor& q_THD, const Tensor& k_TKD) {
  const int64_t delta = q_THD.dim(0) * q_THD.dim(1) * size_of(DType::f32);
  return aligned_to_buffers(delta) + (keys_first(q_THD, k_TKD)
                                          ? 2 * aligned_to_buffers(k_TKD.nbytes())
                                          : aligned_to_buffers(q_THD.nbytes()));
}
void attention_backward(Queue& q, const Tensor& dq_THD, const Tensor& dk_TKD, const Tensor& dv_TKD,
                        const Tensor& do_THD, const Tensor& o_THD, const Tensor& lse_HT,
                        const Tensor& q_THD, const Tensor& k_TKD, const Tensor& v_TKD,
                        const AttentionMask& mask, float scale, const Tensor& scratch);

void attention_cached(Queue& q, const Tensor& o_THD, const Tensor& q_THD, const Tensor& k_CKD,
                      const Tensor& v_CKD, int64_t start, int64_t window, float scale);

}  // namespace capstan::cuda
