#include "model/transformer.h"

#include <algorithm>

#include "model/rope_table.h"
#include "ops/elementwise.h"
#include "ops/rmsnorm.h"

namespace capstan {
namespace {

bool multiplies_in_fp8(const Parameters& params) {
  if (params.precision() != Precision::fp8_mixed) return false;
  const bool frozen = std::any_of(params.spec().params.begin(), params.spec().params.end(),
                                  [](const Param& p) { return !p.trainable; });
  require(!frozen, Fault::usage,
          "precision: fp8-mixed requires training all weights, but some are frozen; use bf16-mixed "
          "with adapters and quantized weights");
  return true;
}

}  // namespace

Transformer::Transformer(Queue& q, Parameters& params, const Recomputation& recompute,
                         int64_t positions, Stage stage)
    : params_(params),
      recompute_(recompute),
      stage_(stage),
      // A scale of FP8 is that of all tokens.
      tokens_(params.mesh().tensor(),
              params.mesh().shape().overlap && params.precision() != Precision::fp8_mixed),
      head_(params, params.spec().head, -1, params.spec().head_lora),
      lowest_unit_(params.spec().lowest_trainable_unit()),
      fp8_(multiplies_in_fp8(params)) {
  const ModelConfig& c = params.spec().config;
  require(0 <= stage.first && stage.first < stage.end && stage.end <= c.layers, Fault::bug,
          "invalid stage: blocks {} to {} of {}", stage.first, stage.end, c.layers);
  const Shape shape{positions, c.head_dim / 2};
  rope_cos_ = q.arena().make(Category::data, DType::f32, shape, "rope cosines");
  rope_sin_ = q.arena().make(Category::data, DType::f32, shape, "rope sines");
  if (q.device() != Device::sim) {
    const RopeTable table = rope_table(c, positions);
    q.upload(rope_cos_, table.cos.data());
    q.upload(rope_sin_, table.sin.data());
  }
  const LayerShare& share = params.spec().share;
  const SplitHeads heads(params.mesh().context(), share.heads(), share.kv_heads(), c.head_dim);
  for (int layer = stage.first; layer < stage.end; ++layer)
    blocks_.emplace_back(params, layer, RopeTensors{rope_cos_, rope_sin_}, tokens_, heads);
  passing_ = make_kept();
}

Transformer::Kept Transformer::make_kept() const {
  Kept kept;
  kept.blocks.resize(blocks_.size());
  kept.later.resize(blocks_.size());
  return kept;
}

void Transformer::drop(Kept& kept, size_t block) {
  if (!reached(block)) return;
  const int layer = stage_.first + static_cast<int>(block);
  blocks_[block].drop(kept.blocks[block], recompute_.of(layer));
}

EmbeddingRows Transformer::embedding_rows() const {
  return {params_.spec().share.vocab.first, tokens_.ranks().size() > 1};
}

HeadRows Transformer::head_rows(Queue& q) const {
  const Communicator& ranks = tokens_.ranks();
  HeadRows rows{.first = params_.spec().share.vocab.first,
                .largest = largest_vocab_share(config(), ranks.size()),
                .rank = ranks.rank(),
                .ranks = ranks.size()};
  if (ranks.size() > 1)
    rows.gather = [&q, ranks](const Tensor& all, const Tensor& mine) {
      Work work = ranks.all_gather(q, all, mine);
      work.join(q);
    };
  return rows;
}

void Transformer::embed(Queue& q, const Batch& batch, BlockActivations& first) {
  params_.acquire(q, 0, Pass::forward);
  const int64_t S = tokens_.share_of(batch.tokens(), first.form);
  first.x_Sh = q.arena().make(Category::activations, params_.types().compute, {S, config().hidden},
                              "block input");
  Buffer room;
  const Tensor x = tokens_.partial(q, room, batch.tokens(), first.x_Sh, "embeddings of all tokens");
  embedding(q, x, params_.weight(params_.spec().embedding), batch.ids_T, embedding_rows());
  tokens_.add(q, first.x_Sh, x, first.form);
  params_.release(q, 0, Pass::forward);
}

void Transformer::embed_backward(Queue& q, const Batch& batch, const Tensor& d_Sh) {
  params_.acquire(q, 0, Pass::backward);
  {
    Buffer room;
    const Tensor d = tokens_.gather(q, room, d_Sh, "embedding gradients of all tokens");
    embedding_backward(q, params_.grad(params_.spec().embedding), d, batch.ids_T, embedding_rows());
  }
  params_.complete(q, 0);
  params_.release(q, 0, Pass::backward);
}

SplitTokens::Form Transformer::form_of(const Mode& mode) const {
  return mode.caches != nullptr ? SplitTokens::Form::whole : SplitTokens::Form::shares;
}

void Transformer::final_norm(Queue& q, Kept& kept, const Tensor& delta, const Tensor& residual) {
  const DType type = params_.types().compute;
  params_.acquire(q, params_.spec().units() - 1, Pass::forward);
  Top& top = kept.top;
  top.x_Sh = q.arena().make(Category::activations, type, delta.shape(), "final input");
  top.norm_Sh = q.arena().make(Category::activations, type, delta.shape(), "final norm");
  top.rstd_S =
      q.arena().make(Category::activations, DType::f32, {delta.dim(0)}, "final norm scale");
  add_rmsnorm(q, top.norm_Sh, top.x_Sh, top.rstd_S, delta, residual,
              params_.weight(params_.spec().final_norm), static_cast<float>(config().norm_eps));
}

Buffer Transformer::run_blocks(Queue& q, const Batch& batch, Kept& kept, Buffer in,
                               const Mode& mode) {
  const Shape shape{tokens_.share_of(batch.tokens(), form_of(mode)), config().hidden};
  const DType type = params_.types().compute;
  Buffer delta;    // the last block's output, to be added to the residual stream…
  Buffer carried;  // …and that stream, if activations are not kept
  Tensor residual;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const int unit = stage_.first + static_cast<int>(i) + 1;
    BlockActivations& a = kept.blocks[i];
    a.dropout = kept.key;
    a.form = form_of(mode);
    // Decoding uses bf16: for one token at a time, conversion to FP8 would cost more than it saves.
    if (fp8_ && mode.caches == nullptr)
      a.amax_42 = q.arena().make(Category::activations, DType::f32, {4, 2}, "fp8 maxima");
    if (i == 0) {
      if (in)
        a.x_Sh = std::move(in);
      else
        embed(q, batch, a);
      params_.acquire(q, unit, Pass::forward);
      blocks_[i].norm_input(q, a);
    } else {
      params_.acquire(q, unit, Pass::forward);
      blocks_[i].enter(q, a, delta, residual);
      delta.release();
      carried.release();
      if (mode.keep) drop(kept, i - 1);
    }
    blocks_[i].attention_half(q, a, batch, mode.caches == nullptr ? nullptr : &(*mode.caches)[i]);
    blocks_[i].mlp_half(q, a, &delta);
    params_.release(q, unit, Pass::forward);
    residual = a.mid_Sh;
    if (!mode.keep || !reached(i)) {
      carried = std::move(a.mid_Sh);
      a = BlockActivations();
    }
  }
  Buffer out;
  if (is_last()) {
    final_norm(q, kept, delta, residual);
  } else {
    out = q.arena().make(Category::activations, type, shape, "stage output");
    add(q, out, delta, residual);
  }
  if (mode.keep) drop(kept, blocks_.size() - 1);
  return out;
}

Buffer Transformer::forward(Queue& q, const Batch& batch, Kept& kept, Buffer in,
                            const std::optional<StepKey>& key) {
  const ModelSpec& spec = params_.spec();
  require(lowest_unit_ < spec.units(), Fault::bug, "training pass without trainable parameters");
  require(key || !spec.lora || spec.lora->dropout == 0, Fault::bug,
          "training pass with dropout but without a key");
  require(is_first() != static_cast<bool>(in), Fault::bug,
          "the stage that starts at block {} was {} an input", stage_.first,
          in ? "given" : "not given");
  kept.key = key;
  if (key) kept.key->ordinals_T = batch.ordinals_T;
  Buffer out = run_blocks(q, batch, kept, std::move(in), {.keep = true});
  if (is_last()) params_.release(q, spec.units() - 1, Pass::forward);
  return out;
}

Buffer Transformer::head_backward(Queue& q, const Batch& batch, const Kept& kept,
                                  const Scalar& scale, Tensor loss) {
  const ModelSpec& spec = params_.spec();
  const Top& top = kept.top;
  const int last = spec.units() - 1;
  params_.acquire(q, last, Pass::backward);
  Buffer d_residual;
  if (lowest_unit_ < last || spec.trainable(spec.final_norm))
    d_residual = q.arena().make(Category::activations, params_.types().compute, top.x_Sh->shape(),
                                "residual gradient");
  Buffer x_room, d_room;
  const Tensor x = tokens_.gather(q, x_room, top.norm_Sh, "final norm of all tokens");
  Tensor d_x;
  if (d_residual) d_x = tokens_.partial(q, d_room, x.dim(0), d_residual, "gradients of all tokens");
  Buffer inner, d_inner;
  HeadTerm term, d_term;
  const Adapter& adapter = head_.adapter();
  if (adapter) {
    inner = adapter.inner(q, x, kept.key);
    d_inner = q.arena().make(Category::activations, inner->dtype(), inner->shape(),
                             "adapter inner gradient");
    term = {inner, adapter.b()};
    d_term = {d_inner, adapter.b_grad()};
  }
  head_loss_backward(q, loss, d_x, params_.grad(spec.head), x, params_.weight(spec.head),
                     batch.labels_T, scale, batch.targets, term, d_term, head_rows(q));
  if (adapter) adapter.backward_inner(q, d_inner, x, kept.key);
  if (d_residual) {
    if (adapter) adapter.backward_data(q, d_x, d_inner, kept.key);
    tokens_.add(q, d_residual, d_x);
    for (Buffer* b : {&x_room, &d_room}) b->release();
    rmsnorm_backward(q, d_residual, params_.grad(spec.final_norm), d_residual, top.x_Sh,
                     params_.weight(spec.final_norm), top.rstd_S, Write::replace);
  }
  params_.complete(q, last);
  complete_tied(q);
  params_.release(q, last, Pass::backward);
  return d_residual;
}

Buffer Transformer::backward(Queue& q, const Batch& batch, Kept& kept, const Scalar& scale,
                             Tensor loss, Buffer d_out, Weights weights) {
  const ModelSpec& spec = params_.spec();
  Buffer d_residual = std::move(d_out);
  if (is_last()) {
    d_residual = head_backward(q, batch, kept, scale, loss);
    kept.top = Top();
  }
  for (size_t i = blocks_.size(); i-- > 0 && reached(i);)
    blocks_[i].backward(q, kept.blocks[i], batch, d_residual,
                        weights == Weights::later ? &kept.later[i] : nullptr);
  if (!is_first() || !spec.trainable(spec.embedding)) return d_residual;
  embed_backward(q, batch, d_residual);
  return {};
}

void Transformer::idle_forward(Queue& q) {
  for (int unit = first_unit(); unit <= last_unit(); ++unit) {
    params_.acquire(q, unit, Pass::forward);
    params_.release(q, unit, Pass::forward);
  }
}

void Transformer::backward_weights(Queue& q, Kept& kept) {
  for (size_t i = blocks_.size(); i-- > 0 && reached(i);)
    blocks_[i].backward_weights(q, kept.later[i]);
}

void Transformer::idle_unit(Queue& q, int unit) {
  params_.acquire(q, unit, Pass::backward);
  params_.zero_grads(q, unit);
  params_.complete(q, unit);
  if (unit == params_.spec().units() - 1) complete_tied(q);
  params_.release(q, unit, Pass::backward);
}

void Transformer::idle_backward(Queue& q, Weights weights) {
  const ModelSpec& spec = params_.spec();
  if (is_last()) idle_unit(q, last_unit());
  if (weights == Weights::now) idle_backward_weights(q);
  if (is_first() && spec.trainable(spec.embedding)) idle_unit(q, 0);
}

void Transformer::idle_backward_weights(Queue& q) {
  for (int unit = stage_.end; unit > stage_.first && unit >= lowest_unit_; --unit)
    idle_unit(q, unit);
}

// In a stage of its own the head is the last that adds to a tied embedding's gradient.
void Transformer::complete_tied(Queue& q) {
  const ModelSpec& spec = params_.spec();
  if (spec.head == spec.embedding && !is_first()) params_.complete(q, 0);
}

template <class Head>
Buffer Transformer::infer(Queue& q, const Batch& batch, Buffer in,
                          const std::vector<LayerCache>* caches, const Head& head) {
  passing_.key.reset();
  Buffer out = run_blocks(q, batch, passing_, std::move(in), {.caches = caches});
  if (!is_last()) return out;
  head(passing_.top);
  passing_.top = Top();
  params_.release(q, params_.spec().units() - 1, Pass::forward);
  return out;
}

Buffer Transformer::evaluate(Queue& q, const Batch& batch, Tensor loss, Buffer in) {
  return infer(q, batch, std::move(in), nullptr, [&](const Top& top) {
    Buffer room, inner;
    const Tensor x = tokens_.gather(q, room, top.norm_Sh, "final norm of all tokens");
    HeadTerm term;
    if (const Adapter& adapter = head_.adapter()) {
      inner = adapter.inner(q, x, {});
      term = {inner, adapter.b()};
    }
    head_loss(q, loss, x, params_.weight(params_.spec().head), batch.labels_T, batch.targets, term,
              head_rows(q));
  });
}

void Transformer::logits(Queue& q, const Batch& batch, Tensor logits_TV) {
  require(is_first() && is_last() && tokens_.ranks().size() == 1, Fault::bug,
          "all logits need the whole model on one rank");
  infer(q, batch, {}, nullptr, [&](const Top& top) {
    Buffer inner;
    head_.forward(q, inner, logits_TV, top.norm_Sh, {});
  });
}

Buffer Transformer::decode(Queue& q, const Batch& batch, const std::vector<LayerCache>& caches,
                           Tensor logits_1V, Buffer in) {
  return infer(q, batch, std::move(in), &caches, [&](const Top& top) {
    Buffer inner;
    head_.forward(q, inner, logits_1V, top.norm_Sh->rows(batch.tokens() - 1, 1), {});
  });
}

}  // namespace capstan
