#include "optim/optimizer.h"

#include <cmath>

#include "ops/optimizer.h"

namespace capstan {

std::string_view name_of(OptimizerOptions::Kind kind) {
  return kind == OptimizerOptions::Kind::adamw ? "AdamW" : "SGD";
}

OptimizerOptions::Kind parse_optimizer(std::string_view name) {
  if (name == "AdamW" || name == "torch.optim.AdamW") return OptimizerOptions::Kind::adamw;
  if (name == "SGD" || name == "torch.optim.SGD") return OptimizerOptions::Kind::sgd;
  fail(Fault::usage, "optimizer: '{}' is not one of AdamW, SGD", name);
}

Optimizer::Optimizer(Queue& q, Parameters& params, const OptimizerOptions& options)
    : params_(params), options_(options) {
  const bool adam = options.kind == OptimizerOptions::Kind::adamw;
  m_.resize(params.spec().params.size());
  v_.resize(m_.size());
  // Zeros, because the setup's memory is.
  const auto moment = [&](const Shape& shape, const char* name) {
    return q.arena().make(Category::optimizer, params.types().state, shape, name);
  };
  for (size_t i = 0; i < m_.size(); ++i) {
    const Shape& shape = params.spec().params[i].shape;
    if (!params.spec().params[i].trainable) continue;
    if (adam || options.momentum != 0) m_[i] = moment(shape, "first moment");
    if (adam) v_[i] = moment(shape, "second moment");
  }
}

void Optimizer::update(Queue& q, double lr, Tensor grad_scale) {
  ++steps_;
  const auto f = [](double x) { return static_cast<float>(x); };
  for (int i = 0; i < params_.count(); ++i) {
    if (!params_.spec().trainable(i)) continue;
    const OptimizerOperands operands{.weight = params_.weight(i),
                                     .master = params_.master(i),
                                     .grad = params_.grad(i),
                                     .m = first_moment(i),
                                     .v = second_moment(i),
                                     .grad_scale = grad_scale};
    const bool decays = params_.spec().params[static_cast<size_t>(i)].decay;
    const double decay = decays ? options_.weight_decay : 0;
    if (options_.kind == OptimizerOptions::Kind::adamw)
      adamw(q, operands,
            {.lr = f(lr),
             .beta1 = f(options_.beta1),
             .beta2 = f(options_.beta2),
             .eps = f(options_.eps),
             .weight_decay = f(decay),
             .step = steps_});
    else
      sgd(q, operands,
          {.lr = f(lr),
           .momentum = f(options_.momentum),
           .dampening = f(options_.dampening),
           .weight_decay = f(decay),
           .nesterov = options_.nesterov,
           .step = steps_});
  }
}

void Optimizer::restore(int64_t steps) {
  require(steps >= 0, Fault::bug, "optimizer: restored after {} steps", steps);
  steps_ = steps;
}

std::string_view Optimizer::first_moment_name() const {
  if (options_.kind == OptimizerOptions::Kind::adamw) return "exp_avg";
  return options_.momentum != 0 ? "momentum_buffer" : "";
}

std::string_view Optimizer::second_moment_name() const {
  return options_.kind == OptimizerOptions::Kind::adamw ? "exp_avg_sq" : "";
}

GradientClip::GradientClip(Queue& q, double max_norm) : max_norm_(static_cast<float>(max_norm)) {
  sum_ = q.arena().make(Category::optimizer, DType::f64, {1}, "gradient norm");
  scale_ = q.arena().make(Category::optimizer, DType::f32, {1}, "gradient scale");
}

void GradientClip::measure(Queue& q, const Parameters& params) {
  const double zero = 0;
  q.upload(sum_, &zero);
  for (int i = 0; i < params.count(); ++i)
    if (params.spec().trainable(i)) sum_squares(q, sum_, params.grad(i));
  clip_scale(q, scale_, sum_, max_norm_);
}

double GradientClip::norm(Queue& q) const {
  return std::sqrt(q.value<double>(sum_));
}

}  // namespace capstan
