#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/parameters.h"
#include "model/saved_tensor.h"
#include "ops/optimizer.h"
#include "optim/stage_squares.h"
#include "recipe/choices.h"

namespace capstan {

struct OptimizerOptions {
  using Kind = OptimizerKind;
  Kind kind = Kind::adamw;
  bool paged = false;  // the state is in host memory (Queue::host), whichever device computes
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // AdamW
  double momentum = 0, dampening = 0;             // SGD
  bool nesterov = false;                          // SGD
  double weight_decay = 0.01;                     // for parameters that the spec marks
  // Stochastic rounding of bf16 weights that have no master copy. The draws depend only on the
  // seed, the step, the parameter and the index of the value in it.
  bool stochastic = false;
  uint64_t seed = 0;
};
// The moments of all trainable parameters, and the update.
//
// AdamW8bit follows bitsandbytes: each tensor of the checkpoint (a part of a parameter) has 8-bit
// moments with its own blocks. Tensors of fewer than 4096 values and the embedding have f32 moments
// in every precision.
class Optimizer {
 public:
  // Allocates zeroed moments from the queue's arena or, if paged, from its host(), outside of a
  // phase. The parameters must outlive this.
  Optimizer(Queue& q, Parameters& params, const OptimizerOptions& options);

  // One step: updates every weight with its gradient times `grad_scale` (one f32 on the device).
  // `not_finite` as in ops/optimizer.h: set to 1 if the step made a weight or moment that is not
  // finite.
  void update(Queue& q, double lr, Tensor grad_scale, Tensor not_finite = {});

  int64_t steps() const { return steps_; }  // done so far
  // Sets the step count, after the state was loaded, or after an update with a NaN scale left it
  // unchanged.
  void restore(int64_t steps);

  // All state that a step changes besides the weights, in the order of the spec. Names for each
  // part NAME of a trainable parameter, as in torch.optim:
  //   "NAME.exp_avg", "NAME.exp_avg_sq"                AdamW, in the shape of NAME
  //   "NAME.exp_avg.absmax", "NAME.exp_avg_sq.absmax"  scales of 8-bit moments (ops/optimizer.h)
  //   "NAME.momentum_buffer"                           SGD with momentum
  // Their pieces are what this rank holds.
  std::vector<SavedTensor> state() const;
  const OptimizerOptions& options() const { return options_; }

 private:
  // Values updated as one tensor, with their state.
  struct Piece {
    Range range;
    int part = -1;  // of the parameter, if its parts have 8-bit blocks of their own
    Buffer m, v, m_absmax, v_absmax;
  };
  OptimizerOperands operands_of(const Piece& piece, Tensor grad_scale) const;
  AdamWStep adamw_step(double lr, double decay) const;
  SgdStep sgd_step(double lr, double decay) const;
  Piece make_piece(Arena& arena, const Range& range, DType type) const;
  void require_whole_blocks() const;
  Piece make_8bit_piece(Arena& arena, const Range& range, const SavedTensor& tensor) const;
  DType moment_type(const SavedTensor& tensor) const;

  Parameters& params_;
  OptimizerOptions options_;
  int64_t steps_ = 0;
  std::vector<Piece> pieces_;
  // Operands of a step; members, so that a step does not allocate.
  std::vector<AdamWParameter> full_;
  std::vector<AdamW8bitParameter> few_bits_;
};

// The norm of all gradients together, and the factor that limits it to max_norm.
class GradientClip {
 public:
  // max_norm infinity: no clipping.
  GradientClip(Queue& q, double max_norm, const Parameters& params);

  // Computes norm and scale; call when all gradients of the step are complete. The loss (one f64,
  // or absent) becomes that of all ranks. If it or the gradients are not finite, the scale is NaN,
  // and updates do nothing. The gradients are `times` as large as they should be (LossScale); the
  // scale makes up for it.
  void measure(Queue& q, const Parameters& params, Tensor loss = {}, double times = 1);
  Tensor scale() const { return *scale_; }  // one f32
  double norm(Queue& q) const;  // before clipping, of gradients as they should be; waits

 private:
  float max_norm_;
  double times_ = 1;
  std::optional<StageSquares> stages_;        // of a pipeline
  Buffer all_sums_, data_sums_, share_sums_;  // one of each rank
  Buffer sum_, scale_;
  std::vector<Tensor> gradients_;  // a member, so that a step does not allocate
};

}  // namespace capstan
