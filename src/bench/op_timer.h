#pragma once

#include <functional>
#include <vector>

#include "tensor/queue.h"

// How long ops take on a device: measured in memory that was planned before, so that no allocation
// is timed.
namespace capstan {

// Tensors for the ops to work on, for as long as this lives.
class Operands {
 public:
  explicit Operands(Queue& q) : q_(q) {}

  Tensor zeros(DType type, const Shape& shape) { return make(q_.arena(), type, shape); }
  Tensor in_host_memory(DType type, const Shape& shape) { return make(q_.host(), type, shape); }
  Tensor ones(DType type, const Shape& shape) { return filled(type, shape, 1); }
  Tensor filled(DType type, const Shape& shape, float value);
  // Normal numbers, since on zeros a GPU is faster than it is: activations, and weights such as
  // keep the size of what they are multiplied with (1 / sqrt of the columns).
  Tensor random(DType type, const Shape& shape) { return normal(type, shape, 1); }
  Tensor weights(DType type, const Shape& shape);
  Tensor of(const std::vector<int32_t>& values);

 private:
  Tensor normal(DType type, const Shape& shape, float deviation);
  Tensor make(Arena& arena, DType type, const Shape& shape);

  Queue& q_;
  std::vector<Buffer> buffers_;
};

using OpCall = std::function<void(Queue&)>;
// Makes the operands and returns the ops that are timed. It is called twice: to plan, and to run.
using OpSetup = std::function<OpCall(Operands&)>;

struct OpTime {
  double seconds = 0;
  Cost cost;  // as the ops account it

  double flops_per_second() const { return cost.flops / seconds; }
  double bytes_per_second() const { return cost.bytes / seconds; }
};

// The median of several repeats of what `setup` returns, at least three, within about
// `budget_seconds`. On a GPU a repeat is as many calls in a row as take a few milliseconds.
OpTime time_ops(Device device, bool tf32, double budget_seconds, const OpSetup& setup);

// The median of repeats of `once`, which returns when it is done: at least three, after one that
// does not count, and more while the budget lasts.
double median_seconds(double budget_seconds, const std::function<void()>& once);

}  // namespace capstan
