#include "model/parameters.h"

#include "ops/elementwise.h"

namespace capstan {

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::f32_true: return "32-true";
    case Precision::bf16_true: return "bf16-true";
    case Precision::bf16_mixed: return "bf16-mixed";
  }
  return "?";
}

Precision parse_precision(std::string_view name) {
  for (const auto p : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed})
    if (name == name_of(p)) return p;
  fail(Fault::usage, "precision: '{}' is not one of 32-true, bf16-true, bf16-mixed", name);
}

PrecisionTypes types_of(Precision precision) {
  switch (precision) {
    case Precision::f32_true: return {DType::f32, DType::f32, DType::f32, DType::f32};
    case Precision::bf16_true: return {DType::bf16, DType::bf16, DType::bf16, DType::bf16};
    case Precision::bf16_mixed: return {DType::bf16, DType::f32, DType::f32, DType::f32};
  }
  fail(Fault::bug, "unknown precision");
}

Parameters::Parameters(Arena& arena, ModelSpec spec, Precision precision, Gradients gradients)
    : spec_(std::move(spec)), precision_(precision), gradients_(gradients), arena_(arena) {
  const PrecisionTypes t = types();
  const auto n = spec_.params.size();
  weights_.resize(n);
  masters_.resize(n);
  grads_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const Shape& shape = spec_.params[i].shape;
    weights_[i] = arena.make(Category::weights, t.compute, shape, "weight");
    if (t.has_master()) masters_[i] = arena.make(Category::weights, t.master, shape, "master");
    if (gradients == Gradients::kept)
      grads_[i] = arena.make(Category::gradients, t.grad, shape, "gradient");
  }
}

void Parameters::initialize(Queue& q, uint64_t seed) {
  for (int i = 0; i < count(); ++i) {
    const Param& p = spec_.params[static_cast<size_t>(i)];
    switch (p.init) {
      case Init::normal: {
        const RngKey key{.seed = seed, .site = site::init + static_cast<uint32_t>(i)};
        fill_normal(q, stored(i), static_cast<float>(spec_.config.init_std), key);
        break;
      }
      case Init::ones: fill(q, stored(i), 1); break;
      case Init::zeros: fill(q, stored(i), 0); break;
    }
  }
  refresh_weights(q);
}

void Parameters::refresh_weights(Queue& q) {
  if (!types().has_master()) return;
  for (int i = 0; i < count(); ++i) cast(q, weight(i), master(i));
}

void Parameters::zero_grads(Queue& q) {
  if (gradients_ != Gradients::kept) return;
  for (int i = 0; i < count(); ++i) fill(q, grad(i), 0);
}

void Parameters::need_grads(Queue& q, int unit) {
  require(gradients_ != Gradients::none, Fault::bug, "a backward pass without gradients");
  if (gradients_ == Gradients::kept) return;
  for (size_t i = 0; i < grads_.size(); ++i) {
    const Param& p = spec_.params[i];
    // A tied embedding gets its first gradient from the head, in the last unit.
    const bool here =
        p.unit == unit || (static_cast<int>(i) == spec_.head && unit == spec_.units() - 1);
    if (!here || grads_[i]) continue;
    grads_[i] = arena_.make(Category::gradients, types().grad, p.shape, "gradient");
    fill(q, grads_[i], 0);
  }
}

void Parameters::drop_grads() {
  if (gradients_ != Gradients::in_step) return;
  for (Buffer& g : grads_) g.release();
}

}  // namespace capstan
