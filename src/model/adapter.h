#pragma once

#include <optional>

#include "model/parameters.h"
#include "ops/dropout_mask.h"
#include "ops/thin_term.h"

namespace capstan {

// The LoRA adapter of one linear map, for inputs x [T, I] and outputs y [T, O]:
//
//   inner = s · drop(x) Aᵀ  [T, n r];      y[:, columns of part p] += inner_p B_pᵀ
//
// Parts that share their input (q, k and v; gate and up) share one product with A and one mask.
// Without a key there is no dropout. Masks are recomputed from their key when needed. The backward
// pass takes x and the small `inner`, or recomputes `inner` if it was not kept. Buffers come from
// the queue's arena.
class Adapter {
 public:
  Adapter(Parameters& params, const AdapterIndex& at);

  explicit operator bool() const { return static_cast<bool>(at_); }
  Tensor b() const { return params_.weight(at_.b); }
  Tensor b_grad() const { return params_.grad(at_.b); }
  bool drops(const std::optional<StepKey>& key) const { return key && dropout_ > 0; }

  Buffer inner(Queue& q, Tensor x, const std::optional<StepKey>& key) const;
  Buffer make_inner(Queue& q, int64_t tokens, const char* name = "adapter inner") const;
  void inner(Queue& q, Tensor inner, Tensor x, const std::optional<StepKey>& key) const;
  ThinTerms outer(Tensor inner) const;  // the term added to y

  // Adds to the gradients of A and B; returns the gradient of drop(x) Aᵀ. `inner` may be absent.
  Buffer backward_weights(Queue& q, Tensor dy, Tensor x, Tensor inner,
                          const std::optional<StepKey>& key) const;
  // The part of backward below B: turns the gradient of `inner` into that of drop(x) Aᵀ, in place,
  // and adds to the gradient of A.
  void backward_inner(Queue& q, Tensor d_inner, Tensor x, const std::optional<StepKey>& key) const;
  // Adds the adapter's contribution to dx, from the gradient of drop(x) Aᵀ.
  void backward_data(Queue& q, Tensor dx, Tensor d_inner, const std::optional<StepKey>& key) const;

 private:
  // Views of part p.
  Tensor inner_of(size_t p, const Tensor& inner) const;
  Tensor rows_of(size_t p, const Tensor& b) const;
  DropoutMask mask(const StepKey& key) const;
  void backward_a(Queue& q, Tensor d_inner, Tensor x, const std::optional<StepKey>& key) const;

  Parameters& params_;
  AdapterIndex at_;
  float scale_ = 0, dropout_ = 0;
};

// The weights of an equivalent model without adapters and quantization, one at a time, so that the
// two models need not exist together:
//
//   W' = W + s · B A  in f32;  W is the stored weight, dequantized if necessary.
//
// The constructor allocates all memory from the arena except scratch of the products. Within a
// phase, request parts in the order of the rehearsal.
class MergedWeights {
 public:
  // Throws Fault::usage for an adapter of a head that is tied to the embedding: the two would have
  // to differ.
  MergedWeights(Queue& q, const Parameters& params);

  // Whether a row differs from its stored value: it has an adapter, or is quantized.
  bool differs(int i) const;
  // One part of such a row, [rows, inputs] in f32; valid until the next call.
  Tensor part(int i, int part);
  // Requests all parts, in order.
  void rehearse();

 private:
  Queue& q_;
  const Parameters& params_;
  std::vector<const AdapterIndex*> adapters_;  // by row; null: none
  Buffer weight_, a_, b_;
};

}  // namespace capstan
