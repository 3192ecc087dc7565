#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/parameters.h"
#include "ops/optimizer.h"
#include "recipe/choices.h"

namespace capstan {

struct OptimizerOptions {
  using Kind = OptimizerKind;
  Kind kind = Kind::adamw;
  bool paged = false;  // the state lives in host memory (Queue::host), whichever device computes
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // AdamW
  double momentum = 0, dampening = 0;             // SGD
  bool nesterov = false;                          // SGD
  double weight_decay = 0.01;                     // on parameters that the spec marks
  // Weights that are bf16 alone are rounded up or down by chance; the draws depend on the seed, the
  // step, the parameter and the place of the value in it, and on nothing else.
  bool stochastic = false;
  uint64_t seed = 0;
};
// The moments of all trainable parameters, and the update.
//
// AdamW8bit is bitsandbytes': each tensor of the checkpoint (a part of a parameter) has moments in
// 8 bits with blocks of its own, but for those of fewer than 4096 values and the embedding, whose
// moments are f32 in every precision.
class Optimizer {
 public:
  // Takes the moments from the queue's arena or, paged, from its host(), outside of a phase: as
  // zeros. The parameters must outlive this.
  Optimizer(Queue& q, Parameters& params, const OptimizerOptions& options);

  // One step: every gradient times `grad_scale` (one f32 on the device) moves its weight.
  // `not_finite` as ops/optimizer.h has it: becomes 1 where the step made a weight or moment that
  // is not finite.
  void update(Queue& q, double lr, Tensor grad_scale, Tensor not_finite = {});

  int64_t steps() const { return steps_; }  // done so far
  // Goes on after that many steps, with a state that was written from outside, or was left alone
  // by an update whose scale was NaN.
  void restore(int64_t steps);

  // All that a step changes beside the weights, in the order of the spec; for each part NAME of a
  // trainable parameter, as torch.optim calls it:
  //   "NAME.exp_avg", "NAME.exp_avg_sq"                AdamW, in the shape of NAME
  //   "NAME.exp_avg.absmax", "NAME.exp_avg_sq.absmax"  beside those in 8 bits (ops/optimizer.h)
  //   "NAME.momentum_buffer"                           SGD with momentum
  struct State {
    std::string name;
    Tensor tensor;  // a contiguous view
  };
  std::vector<State> state() const;
  const OptimizerOptions& options() const { return options_; }

 private:
  // Values that are updated as one tensor, with their state.
  struct Piece {
    Range range;
    Range tensor;  // that it is of: a parameter, or a part with 8-bit blocks of its own
    Buffer m, v, m_absmax, v_absmax;
  };
  OptimizerOperands operands_of(const Piece& piece, Tensor grad_scale) const;
  AdamWStep adamw_step(double lr, double decay) const;
  SgdStep sgd_step(double lr, double decay) const;
  Piece make_piece(Arena& arena, const Range& range, const Range& tensor) const;

  Parameters& params_;
  OptimizerOptions options_;
  int64_t steps_ = 0;
  std::vector<Piece> pieces_;
  // What a step updates together; kept, so that it stays off the heap.
  std::vector<AdamWParameter> full_;
  std::vector<AdamW8bitParameter> few_bits_;
};

// The norm of all gradients together, and the factor that keeps it at most max_norm.
class GradientClip {
 public:
  GradientClip(Queue& q, double max_norm);  // infinity: no clipping

  // Measures; call when all gradients of the step are there. If they, or the loss (one f64, or
  // absent), are not finite, the scale is NaN, which no update applies.
  void measure(Queue& q, const Parameters& params, Tensor loss = {});
  Tensor scale() const { return *scale_; }  // one f32
  double norm(Queue& q) const;              // before clipping; waits for the device

 private:
  float max_norm_;
  Buffer sum_, scale_;
  std::vector<Tensor> gradients_;  // kept, so that a step stays off the heap
};

}  // namespace capstan
