#pragma once

#include "tensor/tensor.h"

namespace capstan {

// A number that an op takes: known when the op is called, or one f32 on the device, read when the
// op is computed, which may be another one each time that a graph (Queue::graph) is replayed.
struct Scalar {
  Scalar(float x) : value(x) {}
  explicit Scalar(Tensor x) : at(std::move(x)) {}

  float value = 0;
  Tensor at;  // absent: `value` it is
};

}  // namespace capstan
