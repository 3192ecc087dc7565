#pragma once

#include "ops/attention.h"

namespace capstan::cuda {

// Attention for heads of at most 128 channels in tiles (narrow types on tensor cores, bf16 on
// Hopper with wgmma), and for longer heads with a warp per query. On tensor cores a NaN can reach
// other documents in the same tile of 64 tokens, as zero times NaN.
void attention(Queue& q, const Tensor& o_THD, const Tensor& lse_HT, const Tensor& q_THD,
               const Tensor& k_TKD, const Tensor& v_TKD, const AttentionMask& mask, float scale);

// Σ_d do·o of every query and head.
inline int64_t attention_backward_scratch(const Tensor& q_THD) {
  return q_THD.dim(0) * q_THD.dim(1) * size_of(DType::f32);
}
// Whether attention_backward rotates dq and dk back if it is given angles. If not, pass none.
inline bool rotates_back(const Tensor& q_THD) {
  return q_THD.dtype() == DType::bf16 && (q_THD.dim(2) == 64 || q_THD.dim(2) == 128);
}
void attention_backward(Queue& q, const Tensor& dq_THD, const Tensor& dk_TKD, const Tensor& dv_TKD,
                        const Tensor& do_THD, const Tensor& o_THD, const Tensor& lse_HT,
                        const Tensor& q_THD, const Tensor& k_TKD, const Tensor& v_TKD,
                        const AttentionMask& mask, float scale, const RopeAngles& rotated,
                        const Tensor& scratch);

void attention_cached(Queue& q, const Tensor& o_THD, const Tensor& q_THD, const Tensor& k_CKD,
                      const Tensor& v_CKD, int64_t start, int64_t window, float scale);

}  // namespace capstan::cuda
