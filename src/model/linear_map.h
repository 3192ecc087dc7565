#pragma once

#include "model/adapter.h"

namespace capstan {

// A linear map of the model: weight, bias (or -1) and adapter.
class LinearMap {
 public:
  LinearMap(Parameters& params, int weight, int bias, const AdapterIndex& adapter)
      : params_(params), weight_(weight), bias_(bias), adapter_(params, adapter) {}

  // Whether any of its parameters is trained: the backward pass then needs x.
  bool trains() const { return params_.spec().trainable(weight_) || adapter_; }
  // Whether the weight itself is.
  bool trains_weight() const { return params_.spec().trainable(weight_); }
  const Adapter& adapter() const { return adapter_; }

  // Rows of inputs that are computed in one call, of so many; by default all that there are.
  struct Rows {
    int64_t first, of;
  };
  // y = x Wᵀ + b, plus the adapter's term. `key`: for the adapter's dropout. `inner` is made for
  // all rows: the adapter's, which saves the backward pass a product; it stays empty without an
  // adapter. With `amax_2`, both passes use the products of ops/linear_fp8.h (only if the whole map
  // is trained), and the forward pass, of all rows, stores there what the backward pass needs.
  void forward(Queue& q, Buffer& inner, Tensor y, Tensor x, const std::optional<StepKey>& key,
               Tensor amax_2 = {}, const Rows& rows = {0, 0}) const;

  // Adds to the gradients of trained parameters. dx may alias x, and is absent if nothing below is
  // trained; `inner` is absent if it was not kept.
  void backward(Queue& q, Tensor dx, Tensor dy, Tensor x, Tensor inner,
                const std::optional<StepKey>& key, Tensor amax_2 = {}) const;

  // The same in two steps, without FP8: all but the gradients of weight and bias, and those.
  void backward_data(Queue& q, Tensor dx, Tensor dy, Tensor x, Tensor inner,
                     const std::optional<StepKey>& key) const;
  void backward_weight(Queue& q, Tensor dy, Tensor x) const;

 private:
  Parameters& params_;
  int weight_, bias_;
  Adapter adapter_;
};

}  // namespace capstan
