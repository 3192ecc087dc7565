#include "model/block.h"

#include <cmath>
#include <utility>

#include "ops/elementwise.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace capstan {

void BlockActivations::drop(Recompute policy) {
  if (policy == Recompute::none) return;
  for (Buffer* b : {&norm1_Th, &norm2_Th, &inner_TF}) b->release();
  if (policy == Recompute::selective) return;
  for (Buffer* b : {&rstd1_T, &qkv_TW, &qk_TW, &qk_rstd_TH, &attn_TW, &lse_HT, &mid_Th, &rstd2_T,
                    &gate_up_TF, &qkv_lora_TR, &o_lora_TR, &gate_up_lora_TR, &down_lora_TR})
    b->release();
}

Block::Block(Parameters& params, int layer, const RopeTensors& rope)
    : params_(params),
      c_(params.spec().config),
      at_(params.spec().blocks[static_cast<size_t>(layer)]),
      unit_(layer + 1),
      qkv_(params, at_.qkv, at_.qkv_bias, at_.qkv_lora),
      o_(params, at_.o, at_.o_bias, at_.o_lora),
      gate_up_(params, at_.gate_up, at_.gate_up_bias, at_.gate_up_lora),
      down_(params, at_.down, at_.down_bias, at_.down_lora),
      reach_(reach()),
      rope_(rope),
      eps_(static_cast<float>(c_.norm_eps)),
      scale_(1.0f / std::sqrt(static_cast<float>(c_.head_dim))) {
  for (const int weight : {at_.qkv, at_.o, at_.gate_up, at_.down})
    params.declare_written_whole(weight);
}

Block::Reach Block::reach() const {
  const ModelSpec& spec = params_.spec();
  Reach r{};
  r.input = spec.lowest_trainable_unit() < unit_ || spec.trainable(at_.input_norm);
  r.qkv = r.input || qkv_.trains() || spec.trainable(at_.q_norm) || spec.trainable(at_.k_norm);
  r.middle = r.qkv || o_.trains() || spec.trainable(at_.post_norm);
  r.gate_up = r.middle || gate_up_.trains();
  return r;
}

Buffer Block::make(Queue& q, int64_t tokens, int64_t width, const char* name) const {
  return q.arena().make(Category::activations, params_.types().compute, {tokens, width}, name);
}

Buffer Block::make_f32(Queue& q, const Shape& shape, const char* name) const {
  return q.arena().make(Category::activations, DType::f32, shape, name);
}

Block::Heads Block::split(const Tensor& qkv_TW) const {
  const int64_t q = c_.q_width(), kv = c_.kv_width();
  return {qkv_TW.cols(0, q).heads(c_.heads), qkv_TW.cols(q, kv).heads(c_.kv_heads),
          qkv_TW.cols(q + kv, kv).heads(c_.kv_heads)};
}

Block::Heads Block::attended(const BlockActivations& a) const {
  Heads h = split(a.qkv_TW);
  if (a.qk_TW) {
    h.q_THD = a.qk_TW->cols(0, c_.q_width()).heads(c_.heads);
    h.k_TKD = a.qk_TW->cols(c_.q_width(), c_.kv_width()).heads(c_.kv_heads);
  }
  return h;
}

Tensor Block::rotated(const BlockActivations& a) const {
  return (a.qk_TW ? *a.qk_TW : *a.qkv_TW)
      .cols(0, c_.q_width() + c_.kv_width())
      .heads(c_.heads + c_.kv_heads);
}

void Block::enter(Queue& q, BlockActivations& a, Tensor delta, Tensor residual) const {
  const int64_t T = delta.dim(0);
  a.x_Th = make(q, T, c_.hidden, "block input");
  a.norm1_Th = make(q, T, c_.hidden, "input norm");
  a.rstd1_T = make_f32(q, {T}, "input norm scale");
  add_rmsnorm(q, a.norm1_Th, a.x_Th, a.rstd1_T, delta, residual, params_.weight(at_.input_norm),
              eps_);
}

void Block::norm_input(Queue& q, BlockActivations& a) const {
  const int64_t T = a.x_Th->dim(0);
  a.norm1_Th = make(q, T, c_.hidden, "input norm");
  if (!a.rstd1_T) a.rstd1_T = make_f32(q, {T}, "input norm scale");
  rmsnorm(q, a.norm1_Th, a.rstd1_T, a.x_Th, params_.weight(at_.input_norm), eps_);
}

Block::QkScales Block::qk_scales(const BlockActivations& a) const {
  const int64_t T = a.qkv_TW->dim(0);
  return {
      a.qk_rstd_TH->rows(0, T * c_.heads).reshape({T, c_.heads}),
      a.qk_rstd_TH->rows(T * c_.heads, T * c_.kv_heads).reshape({T, c_.kv_heads}),
  };
}

void Block::qk_norm_forward(Queue& q, BlockActivations& a) const {
  const int64_t T = a.qkv_TW->dim(0);
  a.qk_TW = make(q, T, c_.q_width() + c_.kv_width(), "queries and keys after norm");
  a.qk_rstd_TH = make_f32(q, {T * (c_.heads + c_.kv_heads)}, "query and key norm scales");
  const Heads from = split(a.qkv_TW), to = attended(a);
  const QkScales scales = qk_scales(a);
  rmsnorm(q, to.q_THD, scales.q_TH, from.q_THD, params_.weight(at_.q_norm), eps_);
  rmsnorm(q, to.k_TKD, scales.k_TK, from.k_TKD, params_.weight(at_.k_norm), eps_);
}

void Block::attention_half(Queue& q, BlockActivations& a, const Batch& batch,
                           const LayerCache* cache) const {
  const int64_t T = a.x_Th->dim(0);
  a.qkv_TW = make(q, T, c_.q_width() + 2 * c_.kv_width(), "queries, keys, values");
  a.qkv_lora_TR = qkv_.forward(q, a.qkv_TW, a.norm1_Th, a.dropout, amax(a, Map::qkv));
  if (c_.qk_norm) qk_norm_forward(q, a);
  rope(q, rotated(a), rope_.cos_PD, rope_.sin_PD, batch.positions_T, Rotation::forward);

  a.attn_TW = make(q, T, c_.q_width(), "attention output");
  const Tensor attn_THD = a.attn_TW->heads(c_.heads);
  if (cache == nullptr) {
    a.lse_HT = make_f32(q, {c_.heads, T}, "attention log-sums");
    const Heads h = attended(a);
    attention(q, attn_THD, a.lse_HT, h.q_THD, h.k_TKD, h.v_TKD, batch.mask, scale_);
  } else {
    const Tensor qk = a.qk_TW ? *a.qk_TW : *a.qkv_TW;
    cast(q, cache->k_CW.rows(cache->start, T), qk.cols(c_.q_width(), c_.kv_width()));
    cast(q, cache->v_CW.rows(cache->start, T),
         a.qkv_TW->cols(c_.q_width() + c_.kv_width(), c_.kv_width()));
    attention_cached(q, attn_THD, attended(a).q_THD, cache->k_CW.heads(c_.kv_heads),
                     cache->v_CW.heads(c_.kv_heads), cache->start, c_.sliding_window, scale_);
  }

  const Buffer delta = make(q, T, c_.hidden, "attention delta");
  a.o_lora_TR = o_.forward(q, delta, a.attn_TW, a.dropout, amax(a, Map::o));
  a.mid_Th = make(q, T, c_.hidden, "block middle");
  a.norm2_Th = make(q, T, c_.hidden, "middle norm");
  a.rstd2_T = make_f32(q, {T}, "middle norm scale");
  add_rmsnorm(q, a.norm2_Th, a.mid_Th, a.rstd2_T, delta, a.x_Th, params_.weight(at_.post_norm),
              eps_);
}

void Block::mlp_half(Queue& q, BlockActivations& a, Tensor delta) const {
  const int64_t T = a.mid_Th->dim(0);
  a.gate_up_TF = make(q, T, 2 * c_.intermediate, "gate and up");
  a.gate_up_lora_TR =
      gate_up_.forward(q, a.gate_up_TF, a.norm2_Th, a.dropout, amax(a, Map::gate_up));
  a.inner_TF = make(q, T, c_.intermediate, "feed-forward inner");
  swiglu(q, a.inner_TF, a.gate_up_TF);
  if (delta) a.down_lora_TR = down_.forward(q, delta, a.inner_TF, a.dropout, amax(a, Map::down));
}

Tensor Block::amax(const BlockActivations& a, Map map) {
  return a.amax_42 ? a.amax_42->rows(static_cast<int64_t>(map), 1).reshape({2}) : Tensor();
}

void Block::drop(BlockActivations& a, Recompute policy) const {
  a.drop(policy);
  if (!qkv_.trains()) a.norm1_Th.release();
  if (!gate_up_.trains()) a.norm2_Th.release();
  if (!down_.trains()) a.inner_TF.release();
}

void Block::backward(Queue& q, BlockActivations& a, const Batch& batch, Tensor d_residual,
                     LaterProducts* later) const {
  params_.acquire(q, unit_, Pass::backward);
  if (!a.mid_Th) {  // Recompute::block kept only the input
    norm_input(q, a);
    attention_half(q, a, batch, nullptr);
    mlp_half(q, a, {});
  }
  mlp_backward(q, a, d_residual, later);
  if (reach_.middle) attention_half_backward(q, a, batch, d_residual, later);
  a = BlockActivations();
  if (later == nullptr) params_.complete(q, unit_);
  params_.release(q, unit_, Pass::backward);
}

void Block::backward_weights(Queue& q, LaterProducts& later) const {
  params_.acquire(q, unit_, Pass::backward);
  for (LaterProduct& product : later) {
    product.map->backward_weight(q, product.dy, product.x);
    product = {};
  }
  later.clear();
  params_.complete(q, unit_);
  params_.release(q, unit_, Pass::backward);
}

Buffer Block::copy_of(Queue& q, const Tensor& dy) const {
  Buffer kept = make(q, dy.dim(0), dy.dim(1), "gradient for a weight");
  copy(q, kept, dy);
  return kept;
}

void Block::mlp_backward(Queue& q, BlockActivations& a, Tensor d_residual,
                         LaterProducts* later) const {
  const int64_t T = d_residual.dim(0);
  // Recomputes missing inputs that a weight gradient needs. Their buffers are then reused: for
  // their gradients, and gate_up's for the gradient of the inner activations.
  if (!a.inner_TF) {
    a.inner_TF = make(q, T, c_.intermediate, "feed-forward inner");
    if (down_.trains()) swiglu(q, a.inner_TF, a.gate_up_TF);
  }
  if (defers(a, down_, later)) {
    Buffer x = std::move(a.inner_TF);
    if (reach_.gate_up) a.inner_TF = make(q, T, c_.intermediate, "feed-forward inner gradient");
    down_.backward_data(q, reach_.gate_up ? *a.inner_TF : Tensor(), d_residual, x, a.down_lora_TR,
                        a.dropout);
    later->push_back({&down_, copy_of(q, d_residual), std::move(x)});
  } else {
    down_.backward(q, reach_.gate_up ? *a.inner_TF : Tensor(), d_residual, a.inner_TF,
                   a.down_lora_TR, a.dropout, amax(a, Map::down));
  }
  a.down_lora_TR.release();
  if (!reach_.gate_up) return;
  swiglu_backward(q, a.gate_up_TF, a.inner_TF, a.gate_up_TF);
  a.inner_TF.release();

  if (!a.norm2_Th) {
    a.norm2_Th = make(q, T, c_.hidden, "middle norm");
    if (gate_up_.trains())
      rmsnorm(q, a.norm2_Th, a.rstd2_T, a.mid_Th, params_.weight(at_.post_norm), eps_);
  }
  if (defers(a, gate_up_, later)) {
    Buffer x = std::move(a.norm2_Th);
    if (reach_.middle) a.norm2_Th = make(q, T, c_.hidden, "middle norm gradient");
    gate_up_.backward_data(q, reach_.middle ? *a.norm2_Th : Tensor(), a.gate_up_TF, x,
                           a.gate_up_lora_TR, a.dropout);
    later->push_back({&gate_up_, std::move(a.gate_up_TF), std::move(x)});
  } else {
    gate_up_.backward(q, reach_.middle ? *a.norm2_Th : Tensor(), a.gate_up_TF, a.norm2_Th,
                      a.gate_up_lora_TR, a.dropout, amax(a, Map::gate_up));
  }
  for (Buffer* b : {&a.gate_up_TF, &a.gate_up_lora_TR}) b->release();
  if (!reach_.middle) return;
  rmsnorm_backward(q, d_residual, params_.grad(at_.post_norm), a.norm2_Th, a.mid_Th,
                   params_.weight(at_.post_norm), a.rstd2_T, Write::add);
  for (Buffer* b : {&a.norm2_Th, &a.mid_Th, &a.rstd2_T}) b->release();
}

void Block::qk_norm_backward(Queue& q, const BlockActivations& a, const Tensor& d_qkv_TW) const {
  const Heads x = split(a.qkv_TW), d = split(d_qkv_TW);
  const QkScales scales = qk_scales(a);
  rmsnorm_backward(q, d.q_THD, params_.grad(at_.q_norm), d.q_THD, x.q_THD,
                   params_.weight(at_.q_norm), scales.q_TH, Write::replace);
  rmsnorm_backward(q, d.k_TKD, params_.grad(at_.k_norm), d.k_TKD, x.k_TKD,
                   params_.weight(at_.k_norm), scales.k_TK, Write::replace);
}

void Block::attention_half_backward(Queue& q, BlockActivations& a, const Batch& batch,
                                    Tensor d_residual, LaterProducts* later) const {
  const int64_t T = d_residual.dim(0);
  const bool later_o = defers(a, o_, later);
  Buffer d_qkv, d_o;
  if (later_o) d_o = copy_of(q, d_residual);
  {
    Buffer d_attn;
    if (reach_.qkv) d_attn = make(q, T, c_.q_width(), "attention output gradient");
    if (later_o)
      o_.backward_data(q, d_attn, d_residual, a.attn_TW, a.o_lora_TR, a.dropout);
    else
      o_.backward(q, d_attn, d_residual, a.attn_TW, a.o_lora_TR, a.dropout, amax(a, Map::o));
    a.o_lora_TR.release();
    if (!reach_.qkv) {
      if (later_o) later->push_back({&o_, std::move(d_o), std::move(a.attn_TW)});
      return;
    }
    d_qkv = make(q, T, c_.q_width() + 2 * c_.kv_width(), "query, key and value gradients");
    const Heads h = attended(a), d = split(d_qkv);
    attention_backward(q, d.q_THD, d.k_TKD, d.v_TKD, d_attn->heads(c_.heads),
                       a.attn_TW->heads(c_.heads), a.lse_HT, h.q_THD, h.k_TKD, h.v_TKD, batch.mask,
                       scale_, {rope_.cos_PD, rope_.sin_PD, batch.positions_T});
  }
  if (later_o) later->push_back({&o_, std::move(d_o), std::move(a.attn_TW)});
  for (Buffer* b : {&a.attn_TW, &a.lse_HT, &a.qk_TW}) b->release();
  if (c_.qk_norm) qk_norm_backward(q, a, d_qkv);
  for (Buffer* b : {&a.qkv_TW, &a.qk_rstd_TH}) b->release();

  if (!a.norm1_Th) {
    if (qkv_.trains())
      norm_input(q, a);
    else
      a.norm1_Th = make(q, T, c_.hidden, "input norm");
  }
  if (defers(a, qkv_, later)) {
    Buffer x = std::move(a.norm1_Th);
    if (reach_.input) a.norm1_Th = make(q, T, c_.hidden, "input norm gradient");
    qkv_.backward_data(q, reach_.input ? *a.norm1_Th : Tensor(), d_qkv, x, a.qkv_lora_TR,
                       a.dropout);
    later->push_back({&qkv_, std::move(d_qkv), std::move(x)});
  } else {
    qkv_.backward(q, reach_.input ? *a.norm1_Th : Tensor(), d_qkv, a.norm1_Th, a.qkv_lora_TR,
                  a.dropout, amax(a, Map::qkv));
  }
  d_qkv.release();
  a.qkv_lora_TR.release();
  if (!reach_.input) return;
  rmsnorm_backward(q, d_residual, params_.grad(at_.input_norm), a.norm1_Th, a.x_Th,
                   params_.weight(at_.input_norm), a.rstd1_T, Write::add);
}

}  // namespace capstan
