#pragma once

#include "ops/rope.h"
#include "tensor/queue.h"

namespace capstan {

// Which keys a query sees.
struct AttentionMask {
  // Document d is the tokens [starts[d], starts[d+1]); i32, `documents` + 1 values, the first 0 and
  // the last T. Queries see only keys of their own document.
  Tensor starts;
  int64_t documents = 0;
  int64_t longest = 0;  // longest document, in tokens; determines the size of the scratch
  int64_t window = 0;   // a query sees at most this many keys, itself included; 0: no limit
  double pairs = 0;     // number of visible (query, key) pairs, for the account; 0: unknown
};

// The pairs of one document of n tokens.
double attention_pairs(int64_t n, int64_t window);

// o[t,h,:] = Σ_s softmax_s(scale * q[t,h,:]·k[s,h/G,:]) v[s,h/G,:] over the tokens s <= t that the
// mask shows, with G = H / K query heads per key head.
//
// lse[h,t] = log Σ_s exp(scale * q·k) is kept for the backward pass (f32). q, k, v and o have one
// type and may have strides in t. Scores are computed in blocks: scratch is linear in `longest`,
// not quadratic.
void attention(Queue& q, Tensor o_THD, Tensor lse_HT, Tensor q_THD, Tensor k_TKD, Tensor v_TKD,
               const AttentionMask& mask, float scale);

// The gradients of the above. All tensors of shape THD or TKD may have strides in t. dq, dk and dv
// may be views of one buffer, disjoint from q, k and v.
//
// If angles are given, rope has rotated q and k by them, and dq and dk are the gradients before
// that rotation, as if rope rotated them back afterwards.
void attention_backward(Queue& q, Tensor dq_THD, Tensor dk_TKD, Tensor dv_TKD, Tensor do_THD,
                        Tensor o_THD, Tensor lse_HT, Tensor q_THD, Tensor k_TKD, Tensor v_TKD,
                        const AttentionMask& mask, float scale, const RopeAngles& rotated = {});

// Decoding: query t is at position start + t of one document and sees the keys [0, start + t] of
// the cache (the last `window` of them, if not 0). The cache already has the new keys. C is the
// capacity; rows from start + T on are not read.
void attention_cached(Queue& q, Tensor o_THD, Tensor q_THD, Tensor k_CKD, Tensor v_CKD,
                      int64_t start, int64_t window, float scale);

}  // namespace capstan
