#include "model/parameters.h"

#include <cmath>

#include "ops/elementwise.h"

namespace capstan {

PrecisionTypes types_of(Precision precision) {
  switch (precision) {
    case Precision::f32_true: return {DType::f32, DType::f32, DType::f32, DType::f32};
    case Precision::bf16_true: return {DType::bf16, DType::bf16, DType::bf16, DType::bf16};
    case Precision::bf16_mixed:
    case Precision::fp8_mixed: return {DType::bf16, DType::f32, DType::f32, DType::f32};
  }
  fail(Fault::bug, "unknown precision");
}

namespace {

using Layout = UnitTensors::Layout;

template <class Test>
std::vector<bool> rows_where(const ModelSpec& spec, const Test& test) {
  std::vector<bool> rows;
  for (const Param& p : spec.params) rows.push_back(test(p));
  return rows;
}

}  // namespace

Parameters::Parameters(Arena& arena, ModelSpec spec, Precision precision, Gradients gradients)
    : spec_(std::move(spec)),
      precision_(precision),
      gradients_(gradients),
      arena_(arena),
      weights_(spec_, types().compute,
               rows_where(spec_, [](const Param& p) { return p.quantize == Quantize::none; }),
               Layout::flat, Category::weights, "weight"),
      masters_(
          spec_, types().master,
          rows_where(spec_, [&](const Param& p) { return p.trainable && types().has_master(); }),
          Layout::flat, Category::weights, "master"),
      grads_(spec_, types().grad, rows_where(spec_, [](const Param& p) { return p.trainable; }),
             gradients == Gradients::in_step ? Layout::apart : Layout::flat, Category::gradients,
             "gradient"),
      quantized_(spec_.params.size()),
      quantized_bytes_(static_cast<size_t>(spec_.units())),
      written_whole_(spec_.params.size()),
      first_backward_(static_cast<size_t>(spec_.units())) {
  for (int unit = 0; unit < spec_.units(); ++unit) {
    weights_.hold(arena, unit);
    make_quantized(arena, unit);
    masters_.hold(arena, unit);
    if (gradients == Gradients::kept) grads_.hold(arena, unit);
  }
  for (int i = 0; i < count(); ++i) {
    const Param& p = spec_.params[static_cast<size_t>(i)];
    if (p.trainable) owned_.push_back(whole(i));
  }
}

// Two passes over the unit's rows: the first counts the bytes, the second places the tensors.
void Parameters::make_quantized(Arena& arena, int unit) {
  Buffer& flat = quantized_bytes_[static_cast<size_t>(unit)];
  int64_t used = 0;
  const auto place = [&](DType type, int64_t size) -> Tensor {
    if (size == 0) return {};
    const int64_t first = used, bytes = size * size_of(type);
    used += aligned_to_buffers(bytes);
    return flat ? flat->rows(first, bytes).viewed_as(type) : Tensor();
  };
  const auto lay_out = [&] {
    used = 0;
    for (size_t i = 0; i < spec_.params.size(); ++i) {
      const Param& param = spec_.params[i];
      if (param.unit != unit || param.quantize == Quantize::none) continue;
      QuantizedMatrix& m = quantized_[i] = QuantizedMatrix();
      m.kind = param.quantize;
      m.shape = param.shape;
      require(param.parts.size() <= m.parts.size(), Fault::bug,
              "{}: cannot quantize a parameter of {} parts", param.name, param.parts.size());
      for (const Part& part : param.parts) {
        const QuantizedSizes s = quantized_sizes(m.kind, part.rows, param.shape[1]);
        QuantizedPart& to = m.parts[static_cast<size_t>(m.count++)];
        to.first_row = part.first_row;
        to.rows = part.rows;
        to.packed = place(DType::u8, s.packed);
        to.absmax = place(s.absmax_type, s.absmax);
        to.scale = place(DType::f32, s.scale);
      }
    }
  };
  lay_out();
  if (used == 0) return;
  flat = arena.make(Category::weights, DType::u8, {used}, "quantized weights");
  lay_out();
}

const QuantizedMatrix* Parameters::quantized(int i) const {
  if (i < 0 || spec_.params[static_cast<size_t>(i)].quantize == Quantize::none) return nullptr;
  return &quantized_[static_cast<size_t>(i)];
}

void Parameters::store_frozen(Queue& q, int i, int part, Tensor x) {
  const Param& p = spec_.params[static_cast<size_t>(i)];
  require(!p.trainable, Fault::bug, "{} is not frozen", p.name);
  if (const QuantizedMatrix* m = quantized(i)) return quantize(q, *m, part, x);
  const Part& rows = p.parts[static_cast<size_t>(part)];
  cast(q, weight(i).rows(rows.first_row, rows.rows), x);
}

void Parameters::initialize(Queue& q, uint64_t seed) {
  for (int i = 0; i < count(); ++i) initialize(q, seed, whole(i));
  refresh_weights(q);
}

void Parameters::initialize_adapters(Queue& q, uint64_t seed) {
  for (int i = 0; i < count(); ++i)
    if (spec_.params[static_cast<size_t>(i)].adapter) initialize(q, seed, whole(i));
  refresh_weights(q);
}

void Parameters::initialize(Queue& q, uint64_t seed, const Range& range) {
  const Param& p = spec_.params[static_cast<size_t>(range.param)];
  require(p.quantize == Quantize::none, Fault::bug,
          "{} is quantized: load it instead of initializing it", p.name);
  const RngKey key{.seed = seed, .site = site::init + static_cast<uint32_t>(range.param)};
  const Tensor values = slice(stored(range.param), range);
  switch (p.init) {
    case Init::normal: {
      const auto deviation = static_cast<float>(spec_.config.init_std);
      return fill_normal(q, values, deviation, key, range.first);
    }
    case Init::uniform: {
      const float bound = 1.0f / std::sqrt(static_cast<float>(p.shape[1]));
      return fill_uniform(q, values, bound, key, range.first);
    }
    case Init::ones: return fill(q, values, 1);
    case Init::zeros: return fill(q, values, 0);
  }
}

void Parameters::refresh_weights(Queue& q) {
  for (int i = 0; i < count(); ++i)
    if (master(i)) cast(q, weight(i), master(i));
}

// Marks gradients that one op overwrites; zeroes the others.
void Parameters::begin_grads(int unit) {
  first_backward_[static_cast<size_t>(unit)] = true;
  for (const Range& r : owned_)
    if (spec_.params[static_cast<size_t>(r.param)].unit == unit &&
        !written_whole_[static_cast<size_t>(r.param)])
      zeroed_.push_back(slice(grad(r.param), r));
}

void Parameters::begin_step(Queue& q) {
  if (gradients_ != Gradients::kept) return;
  zeroed_.clear();
  for (int unit = 0; unit < spec_.units(); ++unit) begin_grads(unit);
  fill_zeros(q, zeroed_);
}

void Parameters::acquire(Queue& q, int unit, Pass pass) {
  if (pass == Pass::forward) return;
  require(gradients_ != Gradients::none, Fault::bug, "backward pass without gradients");
  if (gradients_ == Gradients::kept) return;
  zeroed_.clear();
  // A tied embedding gets its first gradient from the head, in the last unit.
  if (tied_head(unit) && grads_.hold(arena_, 0)) begin_grads(0);
  if (grads_.hold(arena_, unit)) begin_grads(unit);
  fill_zeros(q, zeroed_);
}

void Parameters::complete(Queue&, int unit) {
  first_backward_[static_cast<size_t>(unit)] = false;
}

void Parameters::release(Queue&, int, Pass) {}

void Parameters::end_step() {
  if (gradients_ != Gradients::in_step) return;
  for (int unit = 0; unit < spec_.units(); ++unit) grads_.release(unit);
}

Write Parameters::grad_write(int i) const {
  const auto param = static_cast<size_t>(i);
  const auto unit = static_cast<size_t>(spec_.params[param].unit);
  return written_whole_[param] && first_backward_[unit] ? Write::replace : Write::add;
}

}  // namespace capstan
