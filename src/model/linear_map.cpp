#include "model/linear_map.h"

#include "ops/linear_fp8.h"
#include "ops/quantize.h"

namespace capstan {
namespace {

// Dropout knows each token by its ordinal.
StepKey of_rows(StepKey key, int64_t first, int64_t count) {
  require(static_cast<bool>(key.ordinals_T), Fault::bug,
          "dropout in some rows of a batch without ordinals");
  key.ordinals_T = key.ordinals_T.rows(first, count);
  return key;
}

}  // namespace

void LinearMap::forward(Queue& q, Buffer& inner, Tensor y, Tensor x,
                        const std::optional<StepKey>& key, Tensor amax, const Rows& rows) const {
  if (amax) return linear_fp8(q, y, x, params_.weight(weight_), params_.weight(bias_), amax);
  ThinTerms added;
  if (adapter_) {
    const int64_t of = rows.of == 0 ? x.dim(0) : rows.of;
    if (!inner) inner = adapter_.make_inner(q, of);
    const Tensor inner_rows = inner->rows(rows.first, x.dim(0));
    const bool some = of > x.dim(0) && adapter_.drops(key);
    adapter_.inner(q, inner_rows, x, some ? of_rows(*key, rows.first, x.dim(0)) : key);
    added = adapter_.outer(inner_rows);
  }
  if (const QuantizedMatrix* w = params_.quantized(weight_))
    linear(q, y, x, *w, params_.weight(bias_), added);
  else
    linear(q, y, x, params_.weight(weight_), params_.weight(bias_), added);
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
