#pragma once

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
void head_loss(Queue& q, Tensor loss, Tensor x_TD, Tensor w_VD, Tensor labels_T,
               int64_t targets = -1, const HeadTerm& term = {});

// The same, and the gradients of scale * loss while the logits exist: writes dx (zero for ignored
// tokens) and adds to dw. `scale` is 1 / (number of targets in the whole global batch). dx and dw
// may be absent: if nothing below is trained, and for a frozen head. Writes d_term.x and adds to
// d_term.w, which are present with the term.
void head_loss_backward(Queue& q, Tensor loss, Tensor dx_TD, Tensor dw_VD, Tensor x_TD, Tensor w_VD,
                        Tensor labels_T, const Scalar& scale, int64_t targets = -1,
                        const HeadTerm& term = {}, const HeadTerm& d_term = {});

}  // namespace capstan
