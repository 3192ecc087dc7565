#pragma once

#include "ops/scalar.h"
#include "tensor/queue.h"

namespace capstan {

inline constexpr int32_t kIgnore = -100;  // a label that does not count

// loss[0] += Σ_t -log softmax(x[t] wᵀ)[labels[t]] over the tokens whose label is not kIgnore.
//
// The output head and the cross-entropy in one: logits exist for a chunk of tokens at a time, and
// not at all for tokens that are ignored. loss is one f64, labels are i32 below V. `targets` is how
// many labels count; -1 where that is not known. Logits and their gradients are f32; on cuda they
// are bf16 where x and w are. With a term the
// logits are x[t] wᵀ + term.x[t] term.wᵀ: an adapter's second, thin product.
struct HeadTerm {
  Tensor x_TR, w_VR;  // both or neither
};
void head_loss(Queue& q, Tensor loss, Tensor x_TD, Tensor w_VD, Tensor labels_T,
               int64_t targets = -1, const HeadTerm& term = {});

// The same, and the gradients of scale * loss while the logits are there: dx is written (zero for
// ignored tokens), dw is added to. `scale` is 1 / (labels that count in the whole global batch).
// dx and dw may be absent: where nothing below is trained, and for a frozen head. d_term.x is
// written and d_term.w added to; they are there with the term.
void head_loss_backward(Queue& q, Tensor loss, Tensor dx_TD, Tensor dw_VD, Tensor x_TD, Tensor w_VD,
                        Tensor labels_T, const Scalar& scale, int64_t targets = -1,
                        const HeadTerm& term = {}, const HeadTerm& d_term = {});

}  // namespace capstan
