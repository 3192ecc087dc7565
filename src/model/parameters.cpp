#include "model/parameters.h"

#include <cmath>

#include "ops/elementwise.h"

namespace capstan {

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::f32_true: return "32-true";
    case Precision::bf16_true: return "bf16-true";
    case Precision::bf16_mixed: return "bf16-mixed";
    case Precision::fp8_mixed: return "fp8-mixed";
  }
  return "?";
}

Precision parse_precision(std::string_view name) {
  for (const Precision p : kPrecisions)
    if (name == name_of(p)) return p;
  fail(Fault::usage, "precision: '{}' is not one of 32-true, bf16-true, bf16-mixed, fp8-mixed",
       name);
}

PrecisionTypes types_of(Precision precision) {
  switch (precision) {
    case Precision::f32_true: return {DType::f32, DType::f32, DType::f32, DType::f32};
    case Precision::bf16_true: return {DType::bf16, DType::bf16, DType::bf16, DType::bf16};
    case Precision::bf16_mixed:
    case Precision::fp8_mixed: return {DType::bf16, DType::f32, DType::f32, DType::f32};
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
  quantized_.resize(n);
  written_whole_.resize(n);
  unwritten_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    const Shape& shape = spec_.params[i].shape;
    if (spec_.params[i].quantize != Quantize::none) {
      quantized_[i] = make_quantized(arena, spec_.params[i]);
      continue;
    }
    weights_[i] = arena.make(Category::weights, t.compute, shape, "weight");
    if (!spec_.params[i].trainable) continue;
    if (t.has_master()) masters_[i] = arena.make(Category::weights, t.master, shape, "master");
    if (gradients == Gradients::kept)
      grads_[i] = arena.make(Category::gradients, t.grad, shape, "gradient");
  }
}

Parameters::QuantizedRow Parameters::make_quantized(Arena& arena, const Param& param) {
  QuantizedRow row;
  QuantizedMatrix& m = row.matrix;
  require(param.parts.size() <= m.parts.size(), Fault::bug, "{}: {} parts are too many to quantize",
          param.name, param.parts.size());
  m.kind = param.quantize;
  m.shape = param.shape;
  const auto make = [&](DType type, int64_t size, const char* name) -> Tensor {
    if (size == 0) return {};
    row.buffers.push_back(arena.make(Category::weights, type, {size}, name));
    return row.buffers.back();
  };
  for (const Part& part : param.parts) {
    const QuantizedSizes s = quantized_sizes(m.kind, part.rows, param.shape[1]);
    QuantizedPart& to = m.parts[static_cast<size_t>(m.count++)];
    to.first_row = part.first_row;
    to.rows = part.rows;
    to.packed = make(DType::u8, s.packed, "quantized weight");
    to.absmax = make(s.absmax_type, s.absmax, "quantization scales");
    to.scale = make(DType::f32, s.scale, "scales of scales");
  }
  return row;
}

const QuantizedMatrix* Parameters::quantized(int i) const {
  if (i < 0 || spec_.params[static_cast<size_t>(i)].quantize == Quantize::none) return nullptr;
  return &quantized_[static_cast<size_t>(i)].matrix;
}

void Parameters::store_frozen(Queue& q, int i, int part, Tensor x) {
  const Param& p = spec_.params[static_cast<size_t>(i)];
  require(!p.trainable, Fault::bug, "{} is not frozen", p.name);
  if (const QuantizedMatrix* m = quantized(i)) return quantize(q, *m, part, x);
  const Part& rows = p.parts[static_cast<size_t>(part)];
  cast(q, weight(i).rows(rows.first_row, rows.rows), x);
}

void Parameters::initialize(Queue& q, uint64_t seed) {
  for (int i = 0; i < count(); ++i) initialize_row(q, seed, i);
  refresh_weights(q);
}

void Parameters::initialize_adapters(Queue& q, uint64_t seed) {
  for (int i = 0; i < count(); ++i)
    if (spec_.params[static_cast<size_t>(i)].adapter) initialize_row(q, seed, i);
  refresh_weights(q);
}

void Parameters::initialize_row(Queue& q, uint64_t seed, int i) {
  const Param& p = spec_.params[static_cast<size_t>(i)];
  require(p.quantize == Quantize::none, Fault::bug, "{} is quantized: load it", p.name);
  const RngKey key{.seed = seed, .site = site::init + static_cast<uint32_t>(i)};
  switch (p.init) {
    case Init::normal:
      return fill_normal(q, stored(i), static_cast<float>(spec_.config.init_std), key);
    case Init::uniform:
      return fill_uniform(q, stored(i), 1.0f / std::sqrt(static_cast<float>(p.shape[1])), key);
    case Init::ones: return fill(q, stored(i), 1);
    case Init::zeros: return fill(q, stored(i), 0);
  }
}

void Parameters::refresh_weights(Queue& q) {
  for (int i = 0; i < count(); ++i)
    if (master(i)) cast(q, weight(i), master(i));
}

void Parameters::zero_grads(Queue& q) {
  if (gradients_ != Gradients::kept) return;
  fresh_.clear();
  for (int i = 0; i < count(); ++i)
    if (grad(i)) begin_grad(i);
  fill_zeros(q, fresh_);
}

void Parameters::begin_grad(int i) {
  if (written_whole_[static_cast<size_t>(i)])
    unwritten_[static_cast<size_t>(i)] = true;
  else
    fresh_.push_back(grad(i));
}

Write Parameters::write_grad(int i) {
  const bool first = unwritten_[static_cast<size_t>(i)];
  unwritten_[static_cast<size_t>(i)] = false;
  return first ? Write::replace : Write::add;
}

void Parameters::need_grads(Queue& q, int unit) {
  require(gradients_ != Gradients::none, Fault::bug, "a backward pass without gradients");
  if (gradients_ == Gradients::kept) return;
  fresh_.clear();
  for (size_t i = 0; i < grads_.size(); ++i) {
    const Param& p = spec_.params[i];
    // A tied embedding gets its first gradient from the head, in the last unit.
    const bool here =
        p.unit == unit || (static_cast<int>(i) == spec_.head && unit == spec_.units() - 1);
    if (!here || !p.trainable || grads_[i]) continue;
    grads_[i] = arena_.make(Category::gradients, types().grad, p.shape, "gradient");
    begin_grad(static_cast<int>(i));
  }
  fill_zeros(q, fresh_);
}

void Parameters::drop_grads() {
  if (gradients_ != Gradients::in_step) return;
  for (Buffer& g : grads_) g.release();
}

}  // namespace capstan
