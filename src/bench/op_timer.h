#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "tensor/queue.h"

// Times ops on a device in memory that was planned before, so that no allocation is timed.
namespace capstan {

// Tensors for the ops, which live as long as this object.
class Operands {
 public:
  explicit Operands(Queue& q) : q_(q) {}

  Tensor zeros(DType type, const Shape& shape) { return make(q_.arena(), type, shape); }
  Tensor in_host_memory(DType type, const Shape& shape) { return make(q_.host(), type, shape); }
  Tensor ones(DType type, const Shape& shape) { return filled(type, shape, 1); }
  Tensor filled(DType type, const Shape& shape, float value);
  // Normally distributed values, since zeros would make a GPU faster: activations, and weights
  // scaled to preserve magnitudes (1 / sqrt of the columns).
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
// Creates the operands and returns the ops to time. Called twice: to plan, and to run.
using OpSetup = std::function<OpCall(Operands&)>;

struct OpTime {
  double seconds = 0;
  Cost cost;  // from the ops' account

  double flops_per_second() const { return cost.flops / seconds; }
  double bytes_per_second() const { return cost.bytes / seconds; }
};

// A single call that takes longer than so many seconds is not repeated.
inline constexpr double kEndlessPatience = std::numeric_limits<double>::infinity();

// The median of at least three repeats of the op that `setup` returns, within about
// `budget_seconds`. On a GPU a repeat is as many calls in a row as take a few milliseconds.
OpTime time_ops(Device device, bool tf32, double budget_seconds, const OpSetup& setup,
                double patience = kEndlessPatience);

// The median of repeats of `once`, which returns when done: one warm-up, at least three repeats,
// and more while the budget lasts. Beyond the patience the warm-up itself.
double median_seconds(double budget_seconds, const std::function<void()>& once,
                      double patience = kEndlessPatience);

}  // namespace capstan
