#pragma once

#include <string_view>
#include <vector>

#include "model/parameters.h"

namespace capstan {

struct OptimizerOptions {
  enum class Kind : uint8_t { adamw, sgd };
  Kind kind = Kind::adamw;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // AdamW
  double momentum = 0, dampening = 0;             // SGD
  bool nesterov = false;                          // SGD
  double weight_decay = 0.01;                     // on parameters that the spec marks
};
std::string_view name_of(OptimizerOptions::Kind kind);
OptimizerOptions::Kind parse_optimizer(std::string_view name);  // throws Fault::usage

// The moments of all trainable parameters, and the update.
class Optimizer {
 public:
  // Takes the moments from the arena, outside of a phase: as zeros. The parameters must outlive
  // this.
  Optimizer(Queue& q, Parameters& params, const OptimizerOptions& options);

  // One step: every gradient times `grad_scale` (one f32 on the device) moves its weight.
  void update(Queue& q, double lr, Tensor grad_scale);

  int64_t steps() const { return steps_; }  // done so far
  // Goes on after that many steps, with moments that were written from outside.
  void restore(int64_t steps);
  // Absent where the method has no such moment, and for frozen rows.
  Tensor first_moment(int i) const { return *m_[static_cast<size_t>(i)]; }
  Tensor second_moment(int i) const { return *v_[static_cast<size_t>(i)]; }
  // As torch.optim calls them: "exp_avg" and "exp_avg_sq", or "momentum_buffer". Empty where the
  // method has no such moment.
  std::string_view first_moment_name() const;
  std::string_view second_moment_name() const;
  const OptimizerOptions& options() const { return options_; }

 private:
  Parameters& params_;
  OptimizerOptions options_;
  int64_t steps_ = 0;
  std::vector<Buffer> m_, v_;
};

// The norm of all gradients together, and the factor that keeps it at most max_norm.
class GradientClip {
 public:
  GradientClip(Queue& q, double max_norm);  // infinity: no clipping

  // Measures; call when all gradients of the step are there.
  void measure(Queue& q, const Parameters& params);
  Tensor scale() const { return *scale_; }  // one f32
  double norm(Queue& q) const;              // before clipping; waits for the device

 private:
  float max_norm_;
  Buffer sum_, scale_;
};

}  // namespace capstan
