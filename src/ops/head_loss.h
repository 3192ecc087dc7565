#pragma once

#include <functional>

#include "ops/scalar.h"
#include "tensor/queue.h"

namespace capstan {

inline constexpr int32_t kIgnore = -100;  // a label without loss

// loss[0] += Σ_t -log softmax(x[t] wᵀ)[labels[t]] over the tokens whose label is not kIgnore.
//
// The output head and the cross-entropy, fused: logits exist only for a chunk of tokens at a time,
// and never for ignored tokens. loss is one f64, labels are i32 below V. `targets` is the number of
// labels that are not kIgnore; -1 if unknown. Logits and their gradients are f32; on cuda they are
// bf16 if x and w are. With a term, the logits are x[t] wᵀ + term.x[t] term.wᵀ: an adapter's
// low-rank product.
struct HeadTerm {
  Tensor x_TR, w_VR;  // both or neither
};
//
// The rows of a head may be spread over several ranks, which call the op together with the same x,
// labels and targets: for each chunk of tokens they exchange three numbers per token, never logits.
// Every rank then has the gradients of its own rows: dw is complete, but dx and d_term.x are this
// rank's share of a sum over the ranks.
struct HeadRows {
  int64_t first = 0;    // w has the rows [first, first + V) of the whole head; labels are of all
  int64_t largest = 0;  // the most rows that a rank has: it decides the size of chunks
  int rank = 0, ranks = 1;
  // Work on the queue that makes all [ranks, n, 3] of every rank's mine [n, 3], which is row `rank`
  // of it; both f64. Not called for one rank.
  std::function<void(Tensor all, Tensor mine)> gather = {};
};
// With rows of several ranks, the loss of rank 0 gets the sum, that of the others is unchanged.
void head_loss(Queue& q, Tensor loss, Tensor x_TD, Tensor w_VD, Tensor labels_T,
               int64_t targets = -1, const HeadTerm& term = {}, const HeadRows& rows = {});

// The same, and the gradients of scale * loss while the logits exist: writes dx (zero for ignored
// tokens) and adds to dw. `scale` is 1 / (number of targets in the whole global batch). dx and dw
// may be absent: if nothing below is trained, and for a frozen head. Writes d_term.x and adds to
// d_term.w, which are present with the term.
void head_loss_backward(Queue& q, Tensor loss, Tensor dx_TD, Tensor dw_VD, Tensor x_TD, Tensor w_VD,
                        Tensor labels_T, const Scalar& scale, int64_t targets = -1,
                        const HeadTerm& term = {}, const HeadTerm& d_term = {},
                        const HeadRows& rows = {});

}  // namespace capstan
