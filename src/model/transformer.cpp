#include "model/transformer.h"

#include <algorithm>

#include "model/rope_table.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/rmsnorm.h"

namespace capstan {
namespace {

bool multiplies_in_fp8(const Parameters& params) {
  if (params.precision() != Precision::fp8_mixed) return false;
  const bool frozen = std::any_of(params.spec().params.begin(), params.spec().params.end(),
                                  [](const Param& p) { return !p.trainable; });
  require(!frozen, Fault::usage,
          "precision: fp8-mixed is for training all weights, and some of these are frozen; use "
          "bf16-mixed with adapters and quantized weights");
  return true;
}

}  // namespace

Transformer::Transformer(Queue& q, Parameters& params, const Recomputation& recompute,
                         int64_t positions)
    : params_(params),
      recompute_(recompute),
      head_(params, params.spec().head, -1, params.spec().head_lora),
      lowest_unit_(params.spec().lowest_trainable_unit()),
      fp8_(multiplies_in_fp8(params)) {
  const ModelConfig& c = params.spec().config;
  const Shape shape{positions, c.head_dim / 2};
  rope_cos_ = q.arena().make(Category::data, DType::f32, shape, "rope cosines");
  rope_sin_ = q.arena().make(Category::data, DType::f32, shape, "rope sines");
  if (q.device() != Device::sim) {
    const RopeTable table = rope_table(c, positions);
    q.upload(rope_cos_, table.cos.data());
    q.upload(rope_sin_, table.sin.data());
  }
  for (int layer = 0; layer < c.layers; ++layer)
    blocks_.emplace_back(params, layer, RopeTensors{rope_cos_, rope_sin_});
  kept_.resize(static_cast<size_t>(c.layers));
}

void Transformer::drop(size_t block) {
  if (reached(block)) blocks_[block].drop(kept_[block], recompute_.of(static_cast<int>(block)));
}

void Transformer::embed(Queue& q, const Batch& batch, BlockActivations& first) {
  first.x_Th = q.arena().make(Category::activations, params_.types().compute,
                              {batch.tokens(), config().hidden}, "block input");
  embedding(q, first.x_Th, params_.weight(params_.spec().embedding), batch.ids_T);
}

Transformer::Top Transformer::forward(Queue& q, const Batch& batch,
                                      const std::vector<LayerCache>* caches, bool keep,
                                      const std::optional<StepKey>& key) {
  const int64_t T = batch.tokens(), h = config().hidden;
  const DType type = params_.types().compute;
  Buffer delta;    // what the last block adds to the residual stream…
  Buffer carried;  // …and that stream, where the activations are not kept
  Tensor residual;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    BlockActivations& a = kept_[i];
    a.dropout = key;
    // Text is made in bf16, one token at a time: there the factors in FP8 would cost more than they
    // save.
    if (fp8_ && caches == nullptr)
      a.amax_42 = q.arena().make(Category::activations, DType::f32, {4, 2}, "fp8 maxima");
    if (i == 0) {
      embed(q, batch, a);
      blocks_[i].norm_input(q, a);
    } else {
      blocks_[i].enter(q, a, delta, residual);
      delta.release();
      carried.release();
      if (keep) drop(i - 1);
    }
    blocks_[i].attention_half(q, a, batch, caches == nullptr ? nullptr : &(*caches)[i]);
    delta = q.arena().make(Category::activations, type, {T, h}, "block delta");
    blocks_[i].mlp_half(q, a, delta);
    residual = a.mid_Th;
    if (!keep || !reached(i)) {
      carried = std::move(a.mid_Th);
      a = BlockActivations();
    }
  }

  Top top;
  top.x_Th = q.arena().make(Category::activations, type, {T, h}, "final input");
  top.norm_Th = q.arena().make(Category::activations, type, {T, h}, "final norm");
  top.rstd_T = q.arena().make(Category::activations, DType::f32, {T}, "final norm scale");
  add_rmsnorm(q, top.norm_Th, top.x_Th, top.rstd_T, delta, residual,
              params_.weight(params_.spec().final_norm), static_cast<float>(config().norm_eps));
  if (keep) drop(blocks_.size() - 1);
  return top;
}

Buffer Transformer::head_backward(Queue& q, const Batch& batch, const Top& top, const Scalar& scale,
                                  Tensor loss, const std::optional<StepKey>& key) {
  const ModelSpec& spec = params_.spec();
  const int last = spec.units() - 1;
  params_.need_grads(q, last);
  Buffer d_residual;
  if (lowest_unit_ < last || spec.trainable(spec.final_norm))
    d_residual = q.arena().make(Category::activations, params_.types().compute, top.x_Th->shape(),
                                "residual gradient");
  Buffer inner, d_inner;
  HeadTerm term, d_term;
  const Adapter& adapter = head_.adapter();
  if (adapter) {
    inner = adapter.inner(q, top.norm_Th, key);
    d_inner = q.arena().make(Category::activations, inner->dtype(), inner->shape(),
                             "adapter inner gradient");
    term = {inner, adapter.b()};
    d_term = {d_inner, adapter.b_grad()};
  }
  head_loss_backward(q, loss, d_residual, params_.grad(spec.head), top.norm_Th,
                     params_.weight(spec.head), batch.labels_T, scale, batch.targets, term, d_term);
  if (adapter) adapter.backward_inner(q, d_inner, top.norm_Th, key);
  if (!d_residual) return d_residual;
  if (adapter) adapter.backward_data(q, d_residual, d_inner, key);
  rmsnorm_backward(q, d_residual, params_.grad(spec.final_norm), d_residual, top.x_Th,
                   params_.weight(spec.final_norm), top.rstd_T, Write::replace);
  return d_residual;
}

void Transformer::train(Queue& q, const Batch& batch, const Scalar& scale, Tensor loss,
                        const std::optional<StepKey>& key) {
  const ModelSpec& spec = params_.spec();
  require(lowest_unit_ < spec.units(), Fault::bug, "a training pass with nothing to train");
  require(key || !spec.lora || spec.lora->dropout == 0, Fault::bug,
          "a training pass with dropout needs a key for it");
  Top top = forward(q, batch, nullptr, true, key);
  const Buffer d_residual = head_backward(q, batch, top, scale, loss, key);
  top = Top();

  for (size_t i = blocks_.size(); i-- > 0 && reached(i);)
    blocks_[i].backward(q, kept_[i], batch, d_residual);
  if (!spec.trainable(spec.embedding)) return;
  params_.need_grads(q, 0);
  embedding_backward(q, params_.grad(spec.embedding), d_residual, batch.ids_T);
}

void Transformer::evaluate(Queue& q, const Batch& batch, Tensor loss) {
  const Top top = forward(q, batch, nullptr, false);
  Buffer inner;
  HeadTerm term;
  if (const Adapter& adapter = head_.adapter()) {
    inner = adapter.inner(q, top.norm_Th, {});
    term = {inner, adapter.b()};
  }
  head_loss(q, loss, top.norm_Th, params_.weight(params_.spec().head), batch.labels_T,
            batch.targets, term);
}

void Transformer::logits(Queue& q, const Batch& batch, Tensor logits_TV) {
  const Top top = forward(q, batch, nullptr, false);
  head_.forward(q, logits_TV, top.norm_Th, {});
}

void Transformer::decode(Queue& q, const Batch& batch, const std::vector<LayerCache>& caches,
                         Tensor logits_1V) {
  const Top top = forward(q, batch, &caches, false);
  head_.forward(q, logits_1V, top.norm_Th->rows(batch.tokens() - 1, 1), {});
}

}  // namespace capstan
