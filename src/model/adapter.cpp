#include "model/adapter.h"

#include <algorithm>

#include "ops/dropped_linear.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace capstan {

Adapter::Adapter(Parameters& params, const AdapterIndex& at) : params_(params), at_(at) {
  if (!at) return;
  scale_ = static_cast<float>(params.spec().lora->scale());
  dropout_ = static_cast<float>(params.spec().lora->dropout);
}

Tensor Adapter::inner_of(size_t p, const Tensor& inner) const {
  const int64_t r = params_.spec().lora->r;
  return inner.cols(static_cast<int64_t>(p) * r, r);
}
Tensor Adapter::rows_of(size_t p, const Tensor& b) const {
  const auto& row = params_.spec().params[static_cast<size_t>(at_.b)].parts[p];
  return b.rows(row.first_row, row.rows);
}

DropoutMask Adapter::mask(const StepKey& key) const {
  const uint32_t place = site::dropout + static_cast<uint32_t>(at_.number);
  const RngKey known{.seed = key.seed, .step = key.step, .site = place};
  const Param& a = params_.spec().params[static_cast<size_t>(at_.a)];
  return {.p = dropout_,
          .key = key.at ? RandomKey(key.at, place) : RandomKey(known),
          .ordinals_T = key.ordinals_T,
          .columns = a.whole_columns(),
          .first_column = a.parts[0].column};
}

Buffer Adapter::make_inner(Queue& q, int64_t tokens, const char* name) const {
  return q.arena().make(Category::activations, params_.types().compute,
                        {tokens, params_.weight(at_.a).dim(0)}, name);
}

Buffer Adapter::inner(Queue& q, Tensor x, const std::optional<StepKey>& key) const {
  Buffer inner = make_inner(q, x.dim(0));
  this->inner(q, inner, x, key);
  return inner;
}

void Adapter::inner(Queue& q, Tensor inner, Tensor x, const std::optional<StepKey>& key) const {
  const Tensor a = params_.weight(at_.a);
  if (drops(key))
    dropped_linear(q, inner, x, a, scale_, mask(*key));
  else
    linear(q, inner, x, a, {}, Write::replace, scale_);
}

ThinTerms Adapter::outer(Tensor inner) const {
  ThinTerms terms;
  for (size_t p = 0; p < at_.columns.size(); ++p)
    terms.add({inner_of(p, inner), rows_of(p, b()), at_.columns[p].first});
  return terms;
}

Buffer Adapter::backward_weights(Queue& q, Tensor dy, Tensor x, Tensor inner,
                                 const std::optional<StepKey>& key) const {
  Buffer d_inner = make_inner(q, x.dim(0), "adapter inner gradient");
  {
    Buffer again;
    if (!inner) {
      again = this->inner(q, x, key);
      inner = again;
    }
    for (size_t p = 0; p < at_.columns.size(); ++p) {
      const Tensor dy_p = dy.cols(at_.columns[p].first, at_.columns[p].count);
      linear_backward_weight(q, rows_of(p, b_grad()), {}, dy_p, inner_of(p, inner));
      linear_backward_data(q, inner_of(p, d_inner), dy_p, rows_of(p, b()), Write::replace, scale_);
    }
  }
  backward_a(q, d_inner, x, key);
  return d_inner;
}

void Adapter::backward_inner(Queue& q, Tensor d_inner, Tensor x,
                             const std::optional<StepKey>& key) const {
  scale(q, d_inner, d_inner, scale_);
  backward_a(q, d_inner, x, key);
}

void Adapter::backward_a(Queue& q, Tensor d_inner, Tensor x,
                         const std::optional<StepKey>& key) const {
  const Tensor da = params_.grad(at_.a);
  if (drops(key))
    dropped_linear_backward_weight(q, da, d_inner, x, mask(*key));
  else
    linear_backward_weight(q, da, {}, d_inner, x);
}

void Adapter::backward_data(Queue& q, Tensor dx, Tensor d_inner,
                            const std::optional<StepKey>& key) const {
  const Tensor a = params_.weight(at_.a);
  if (drops(key))
    dropped_linear_backward_data(q, dx, d_inner, a, mask(*key));
  else
    linear_backward_data(q, dx, d_inner, a, Write::add);
}

namespace {

void require_mergeable(const ModelSpec& spec) {
  require(!spec.head_lora || spec.head != spec.embedding, Fault::usage,
          "lora: the head's adapter cannot be merged, because this model's head shares its "
          "weights with the embedding; keep the adapter, or train without lora_head");
}

// The adapter of each row, or null.
std::vector<const AdapterIndex*> adapters_by_row(const ModelSpec& spec) {
  std::vector<const AdapterIndex*> rows(spec.params.size());
  const auto add = [&](int weight, const AdapterIndex& at) {
    if (at) rows[static_cast<size_t>(weight)] = &at;
  };
  for (const BlockIndex& block : spec.blocks) {
    add(block.qkv, block.qkv_lora);
    add(block.o, block.o_lora);
    add(block.gate_up, block.gate_up_lora);
    add(block.down, block.down_lora);
  }
  add(spec.head, spec.head_lora);
  return rows;
}

}  // namespace

MergedWeights::MergedWeights(Queue& q, const Parameters& params)
    : q_(q), params_(params), adapters_(adapters_by_row(params.spec())) {
  const ModelSpec& spec = params.spec();
  require_mergeable(spec);
  int64_t largest = 1, largest_a = 1, largest_b = 1;
  for (int i = 0; i < params.count(); ++i) {
    if (!differs(i)) continue;
    const Param& p = spec.params[static_cast<size_t>(i)];
    for (const auto& part : p.parts) {
      largest = std::max(largest, part.rows * p.shape[1]);
      if (!spec.lora) continue;
      largest_a = std::max(largest_a, spec.lora->r * p.shape[1]);
      largest_b = std::max(largest_b, part.rows * spec.lora->r);
    }
  }
  const auto make = [&](int64_t values, const char* name) {
    return q.arena().make(Category::workspace, DType::f32, {values}, name);
  };
  weight_ = make(largest, "merged weight");
  a_ = make(largest_a, "A in f32");
  b_ = make(largest_b, "scaled B");
}

bool MergedWeights::differs(int i) const {
  return adapters_[static_cast<size_t>(i)] != nullptr || params_.quantized(i) != nullptr;
}

Tensor MergedWeights::part(int i, int part) {
  const ModelSpec& spec = params_.spec();
  const auto& row = spec.params[static_cast<size_t>(i)];
  const auto& rows = row.parts[static_cast<size_t>(part)];
  const auto matrix = [](const Buffer& room, int64_t n, int64_t columns) {
    return room->rows(0, n * columns).reshape({n, columns});
  };
  const Tensor y = matrix(weight_, rows.rows, row.shape[1]);
  if (const QuantizedMatrix* quantized = params_.quantized(i))
    dequantize(q_, y, *quantized, rows.first_row);
  else
    cast(q_, y, params_.stored(i).rows(rows.first_row, rows.rows));
  const AdapterIndex* at = adapters_[static_cast<size_t>(i)];
  if (at == nullptr) return y;
  const int64_t r = spec.lora->r;
  const Tensor a = matrix(a_, r, row.shape[1]), b = matrix(b_, rows.rows, r);
  for (size_t p = 0; p < at->columns.size(); ++p) {
    if (at->columns[p].first != rows.first_row) continue;
    const auto& b_rows = spec.params[static_cast<size_t>(at->b)].parts[p];
    cast(q_, a, params_.stored(at->a).rows(static_cast<int64_t>(p) * r, r));
    cast(q_, b, params_.stored(at->b).rows(b_rows.first_row, b_rows.rows));
    scale(q_, b, b, static_cast<float>(spec.lora->scale()));
    linear_backward_data(q_, y, b, a, Write::add);
  }
  return y;
}

void MergedWeights::rehearse() {
  for (int i = 0; i < params_.count(); ++i)
    if (differs(i))
      for (size_t k = 0; k < params_.spec().params[static_cast<size_t>(i)].parts.size(); ++k)
        part(i, static_cast<int>(k));
}

}  // namespace capstan
