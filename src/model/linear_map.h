#pragma once

#include "model/adapter.h"

namespace capstan {

// A linear map of the model with all that belongs to it: weight, bias (or -1), adapter.
class LinearMap {
 public:
  LinearMap(Parameters& params, int weight, int bias, const AdapterIndex& adapter)
      : params_(params), weight_(weight), bias_(bias), adapter_(params, adapter) {}

  // Whether any of it is trained: then the backward pass needs x.
  bool trains() const { return params_.spec().trainable(weight_) || adapter_; }
  const Adapter& adapter() const { return adapter_; }

  // y = x Wᵀ + b, and what the adapter adds. `key`: of the adapter's dropout. Returns the adapter's
  // `inner`, which spares the backward pass a product; empty without one. With `amax_2` products
  // are those of ops/linear_fp8.h, in both passes, for a map that is trained whole: the forward
  // pass leaves there what the backward pass needs.
  Buffer forward(Queue& q, Tensor y, Tensor x, const std::optional<StepKey>& key,
                 Tensor amax_2 = {}) const;

  // Adds to the gradients of what is trained. dx may alias x, and is absent where nothing below is
  // trained; `inner` is absent where it has not been kept.
  void backward(Queue& q, Tensor dx, Tensor dy, Tensor x, Tensor inner,
                const std::optional<StepKey>& key, Tensor amax_2 = {}) const;

 private:
  Parameters& params_;
  int weight_, bias_;
  Adapter adapter_;
};

}  // namespace capstan
