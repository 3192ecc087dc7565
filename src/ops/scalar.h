#pragma once

#include "tensor/tensor.h"

namespace capstan {

// A number for an op: known at the call, or one f32 on the device that is read when the op runs, so
// each replay of a graph (Queue::graph) may use another value.
struct Scalar {
  Scalar(float x) : value(x) {}
  explicit Scalar(Tensor x) : at(std::move(x)) {}

  float value = 0;
  Tensor at;  // absent: use `value`
};

}  // namespace capstan
