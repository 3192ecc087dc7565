#include "model/linear_map.h"

#include "ops/linear_fp8.h"
#include "ops/quantize.h"

namespace capstan {

Buffer LinearMap::forward(Queue& q, Tensor y, Tensor x, const std::optional<StepKey>& key,
                          Tensor amax) const {
  if (amax) {
    linear_fp8(q, y, x, params_.weight(weight_), params_.weight(bias_), amax);
    return {};
  }
  Buffer inner;
  if (adapter_) inner = adapter_.inner(q, x, key);
  const ThinTerms added = adapter_ ? adapter_.outer(inner) : ThinTerms();
  if (const QuantizedMatrix* w = params_.quantized(weight_))
    linear(q, y, x, *w, params_.weight(bias_), added);
  else
    linear(q, y, x, params_.weight(weight_), params_.weight(bias_), added);
  return inner;
}

void LinearMap::backward(Queue& q, Tensor dx, Tensor dy, Tensor x, Tensor inner,
                         const std::optional<StepKey>& key, Tensor amax) const {
  if (amax)
    return linear_fp8_backward(q, dx, params_.grad(weight_), params_.grad(bias_), dy, x,
                               params_.weight(weight_), amax, params_.grad_write(weight_));
  if (trains_weight()) backward_weight(q, dy, x);
  backward_data(q, dx, dy, x, inner, key);
}

void LinearMap::backward_weight(Queue& q, Tensor dy, Tensor x) const {
  linear_backward_weight(q, params_.grad(weight_), params_.grad(bias_), dy, x,
                         params_.grad_write(weight_));
}

void LinearMap::backward_data(Queue& q, Tensor dx, Tensor dy, Tensor x, Tensor inner,
                              const std::optional<StepKey>& key) const {
  Buffer d_inner;
  if (adapter_) d_inner = adapter_.backward_weights(q, dy, x, inner, key);
  if (!dx) return;
  if (const QuantizedMatrix* w = params_.quantized(weight_))
    linear_backward_data(q, dx, dy, *w);
  else
    linear_backward_data(q, dx, dy, params_.weight(weight_));
  if (adapter_) adapter_.backward_data(q, dx, d_inner, key);
}

}  // namespace capstan
