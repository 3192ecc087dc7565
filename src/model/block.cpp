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
  for (Buffer* b : {&norm1_Sh, &norm2_Sh, &inner_TF}) b->release();
  if (policy == Recompute::selective) return;
  for (Buffer* b :
       {&rstd1_S, &qkv_TW, &qk_TW, &qk_rstd_TH, &heads_CW, &attn_TW, &lse_HT, &mid_Sh, &rstd2_S,
        &gate_up_TF, &qkv_lora_TR, &o_lora_TR, &gate_up_lora_TR, &down_lora_TR})
    b->release();
}

namespace {

// The bias of a product whose inputs are spread over the ranks: one rank adds it.
int bias_of(const ModelSpec& spec, int bias) {
  return spec.share.ranks().rank == 0 ? bias : -1;
}

}  // namespace

Block::Block(Parameters& params, int layer, const RopeTensors& rope, const SplitTokens& tokens,
             const SplitHeads& heads)
    : params_(params),
      c_(params.spec().config),
      heads_(params.spec().share.heads()),
      kv_heads_(params.spec().share.kv_heads()),
      inner_(params.spec().share.intermediate.count),
      at_(params.spec().blocks[static_cast<size_t>(layer)]),
      unit_(layer + 1),
      qkv_(params, at_.qkv, at_.qkv_bias, at_.qkv_lora),
      o_(params, at_.o, bias_of(params.spec(), at_.o_bias), at_.o_lora),
      gate_up_(params, at_.gate_up, at_.gate_up_bias, at_.gate_up_lora),
      down_(params, at_.down, bias_of(params.spec(), at_.down_bias), at_.down_lora),
      reach_(reach()),
      rope_(rope),
      tokens_(tokens),
      split_heads_(heads),
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
  const int64_t q = q_width(), kv = kv_width();
  return {qkv_TW.cols(0, q).heads(heads_), qkv_TW.cols(q, kv).heads(kv_heads_),
          qkv_TW.cols(q + kv, kv).heads(kv_heads_)};
}

Block::Heads Block::attended(const BlockActivations& a) const {
  Heads h = split(a.qkv_TW);
  if (a.qk_TW) {
    h.q_THD = a.qk_TW->cols(0, q_width()).heads(heads_);
    h.k_TKD = a.qk_TW->cols(q_width(), kv_width()).heads(kv_heads_);
  }
  return h;
}

Block::Columns Block::columns(const Tensor& qk_TW, const Tensor& qkv_TW) const {
  return {qk_TW.cols(0, q_width()), qk_TW.cols(q_width(), kv_width()),
          qkv_TW.cols(q_width() + kv_width(), kv_width())};
}

int64_t Block::all_tokens(const BlockActivations& a) const {
  const int64_t own = a.mid_Sh->dim(0);
  return a.form == SplitTokens::Form::whole ? own : own * tokens_.ranks().size();
}

Tensor Block::rotated(const BlockActivations& a) const {
  return (a.qk_TW ? *a.qk_TW : *a.qkv_TW).cols(0, q_width() + kv_width()).heads(heads_ + kv_heads_);
}

void Block::enter(Queue& q, BlockActivations& a, Tensor delta, Tensor residual) const {
  const int64_t T = delta.dim(0);
  a.x_Sh = make(q, T, c_.hidden, "block input");
  a.norm1_Sh = make(q, T, c_.hidden, "input norm");
  a.rstd1_S = make_f32(q, {T}, "input norm scale");
  add_rmsnorm(q, a.norm1_Sh, a.x_Sh, a.rstd1_S, delta, residual, params_.weight(at_.input_norm),
              eps_);
}

void Block::norm_input(Queue& q, BlockActivations& a) const {
  const int64_t T = a.x_Sh->dim(0);
  a.norm1_Sh = make(q, T, c_.hidden, "input norm");
  if (!a.rstd1_S) a.rstd1_S = make_f32(q, {T}, "input norm scale");
  rmsnorm(q, a.norm1_Sh, a.rstd1_S, a.x_Sh, params_.weight(at_.input_norm), eps_);
}

Block::QkScales Block::qk_scales(const BlockActivations& a) const {
  const int64_t T = a.qkv_TW->dim(0);
  return {
      a.qk_rstd_TH->rows(0, T * heads_).reshape({T, heads_}),
      a.qk_rstd_TH->rows(T * heads_, T * kv_heads_).reshape({T, kv_heads_}),
  };
}

void Block::qk_norm_forward(Queue& q, BlockActivations& a) const {
  const int64_t T = a.qkv_TW->dim(0);
  a.qk_TW = make(q, T, q_width() + kv_width(), "queries and keys after norm");
  a.qk_rstd_TH = make_f32(q, {T * (heads_ + kv_heads_)}, "query and key norm scales");
  const Heads from = split(a.qkv_TW), to = attended(a);
  const QkScales scales = qk_scales(a);
  rmsnorm(q, to.q_THD, scales.q_TH, from.q_THD, params_.weight(at_.q_norm), eps_);
  rmsnorm(q, to.k_TKD, scales.k_TK, from.k_TKD, params_.weight(at_.k_norm), eps_);
}

void Block::attend(Queue& q, BlockActivations& a, const Batch& batch) const {
  if (!split_heads_.splits()) {
    a.lse_HT = make_f32(q, {heads_, a.attn_TW->dim(0)}, "attention log-sums");
    const Heads h = attended(a);
    attention(q, a.attn_TW->heads(heads_), a.lse_HT, h.q_THD, h.k_TKD, h.v_TKD, batch.mask, scale_);
    return;
  }
  const Columns c = columns(a.qk_TW ? *a.qk_TW : *a.qkv_TW, a.qkv_TW);
  a.heads_CW = split_heads_.to_heads(q, c.q, c.k, c.v);
  (a.qk_TW ? a.qk_TW : a.qkv_TW).release();
  const int64_t all = a.heads_CW->dim(0);
  a.lse_HT = make_f32(q, {split_heads_.heads(), all}, "attention log-sums");
  const Buffer out = make(q, all, split_heads_.out_width(), "attention output of all tokens");
  const SplitHeads::Heads h = split_heads_.views(a.heads_CW);
  attention(q, split_heads_.out_view(out), a.lse_HT, h.q_THD, h.k_TKD, h.v_TKD, batch.mask, scale_);
  split_heads_.outputs_from_heads(q, out, a.attn_TW);
}

void Block::attend_cached(Queue& q, BlockActivations& a, const LayerCache& cache) const {
  const int64_t T = a.attn_TW->dim(0);
  const Tensor qk = a.qk_TW ? *a.qk_TW : *a.qkv_TW;
  cast(q, cache.k_CW.rows(cache.start, T), qk.cols(q_width(), kv_width()));
  cast(q, cache.v_CW.rows(cache.start, T), a.qkv_TW->cols(q_width() + kv_width(), kv_width()));
  attention_cached(q, a.attn_TW->heads(heads_), attended(a).q_THD, cache.k_CW.heads(kv_heads_),
                   cache.v_CW.heads(kv_heads_), cache.start, c_.sliding_window, scale_);
}

void Block::attention_half(Queue& q, BlockActivations& a, const Batch& batch,
                           const LayerCache* cache) const {
  const int64_t T = batch.tokens();
  a.qkv_TW = make(q, T, q_width() + 2 * kv_width(), "queries, keys, values");
  {
    SplitTokens::Gathering x =
        tokens_.begin_gather(q, a.norm1_Sh, "input norm of all tokens", a.form);
    for (const Part& part : tokens_.parts(a.norm1_Sh->dim(0), a.form))
      qkv_.forward(q, a.qkv_lora_TR, part.of_all(a.qkv_TW), x.join(q, a.norm1_Sh, part), a.dropout,
                   amax(a, Map::qkv), {part.first, T});
  }
  if (c_.qk_norm) qk_norm_forward(q, a);
  rope(q, rotated(a), rope_.cos_PD, rope_.sin_PD, batch.positions_T, Rotation::forward);

  a.attn_TW = make(q, T, q_width(), "attention output");
  if (cache == nullptr)
    attend(q, a, batch);
  else
    attend_cached(q, a, *cache);
}

void Block::mlp_half(Queue& q, BlockActivations& a, Buffer* out) const {
  const int64_t S = a.x_Sh->dim(0), T = a.attn_TW->dim(0);
  const SplitTokens::Parts parts = tokens_.parts(S, a.form);
  Buffer delta = make(q, S, c_.hidden, "attention delta"), room, out_room;
  Tensor partial = tokens_.partial(q, room, T, delta, "partial sums"), out_partial;
  SplitTokens::Sum sum, out_sum;
  SplitTokens::Gathering norm;

  const auto add_attention = [&](const Part& part) {
    o_.forward(q, a.o_lora_TR, part.of_all(partial), part.of_all(a.attn_TW), a.dropout,
               amax(a, Map::o), {part.first, T});
    tokens_.begin(q, sum, delta, partial, part, a.form);
  };
  const auto norm_middle = [&](const Part& part) {
    sum.join(q, part);
    if (part.is_last()) room.release();
    if (part.is_first()) {
      a.mid_Sh = make(q, S, c_.hidden, "block middle");
      a.norm2_Sh = make(q, S, c_.hidden, "middle norm");
      a.rstd2_S = make_f32(q, {S}, "middle norm scale");
    }
    add_rmsnorm(q, part.of_share(a.norm2_Sh), part.of_share(a.mid_Sh), part.of_share(a.rstd2_S),
                part.of_share(delta), part.of_share(a.x_Sh), params_.weight(at_.post_norm), eps_);
    if (part.is_last()) delta.release();
    if (part.is_first()) {
      if (out != nullptr) *out = make(q, S, c_.hidden, "block delta");
      a.gate_up_TF = make(q, T, 2 * inner_, "gate and up");
      norm = tokens_.gathering(q, a.norm2_Sh, "middle norm of all tokens", a.form);
    }
    tokens_.begin(q, norm, a.norm2_Sh, part);
  };
  const auto multiply = [&](const Part& part) {
    gate_up_.forward(q, a.gate_up_lora_TR, part.of_all(a.gate_up_TF),
                     norm.join(q, a.norm2_Sh, part), a.dropout, amax(a, Map::gate_up),
                     {part.first, T});
    if (part.is_last()) norm.all.release();
  };
  const auto add_inner = [&](const Part& part) {
    if (part.is_first()) a.inner_TF = make(q, T, inner_, "feed-forward inner");
    swiglu(q, part.of_all(a.inner_TF), part.of_all(a.gate_up_TF));
    if (out == nullptr) return;
    if (part.is_first()) out_partial = tokens_.partial(q, out_room, T, *out, "partial sums");
    down_.forward(q, a.down_lora_TR, part.of_all(out_partial), part.of_all(a.inner_TF), a.dropout,
                  amax(a, Map::down), {part.first, T});
    tokens_.begin(q, out_sum, *out, out_partial, part, a.form);
  };
  SplitTokens::in_turns(parts, add_attention, norm_middle, multiply, add_inner);
  out_sum.join(q);
}

Tensor Block::amax(const BlockActivations& a, Map map) {
  return a.amax_42 ? a.amax_42->rows(static_cast<int64_t>(map), 1).reshape({2}) : Tensor();
}

void Block::drop(BlockActivations& a, Recompute policy) const {
  a.drop(policy);
  if (!qkv_.trains()) a.norm1_Sh.release();
  if (!gate_up_.trains()) a.norm2_Sh.release();
  if (!down_.trains()) a.inner_TF.release();
}

void Block::backward(Queue& q, BlockActivations& a, const Batch& batch, Tensor d_residual,
                     LaterProducts* later) const {
  params_.acquire(q, unit_, Pass::backward);
  if (!a.mid_Sh) {  // Recompute::block kept only the input
    norm_input(q, a);
    attention_half(q, a, batch, nullptr);
    mlp_half(q, a, nullptr);
  }
  LaterProducts beside;
  const bool here = later == nullptr && tokens_.overlaps();
  const Deferred deferred{here ? &beside : later, here};
  mlp_backward(q, a, d_residual, deferred);
  if (reach_.middle) attention_half_backward(q, a, batch, d_residual, deferred);
  deferred.run_beside(q);
  a = BlockActivations();
  if (later == nullptr) params_.complete(q, unit_);
  params_.release(q, unit_, Pass::backward);
}

void Block::backward_weights(Queue& q, LaterProducts& later) const {
  params_.acquire(q, unit_, Pass::backward);
  run_products(q, later);
  params_.complete(q, unit_);
  params_.release(q, unit_, Pass::backward);
}

void Block::run_products(Queue& q, LaterProducts& products, size_t left) {
  if (products.size() <= left) return;
  const auto end = products.end() - static_cast<std::ptrdiff_t>(left);
  for (auto product = products.begin(); product != end; ++product) {
    product->map->backward_weight(q, product->dy, product->x);
    *product = {};
  }
  products.erase(products.begin(), end);
}

Buffer Block::copy_of(Queue& q, const Tensor& dy) const {
  Buffer kept = make(q, dy.dim(0), dy.dim(1), "gradient for a weight");
  copy(q, kept, dy);
  return kept;
}

template <class Again>
SplitTokens::Gathering Block::gather_again(Queue& q, const LinearMap& map, Buffer& norm_Sh,
                                           const char* name, const Again& again) const {
  if (!tokens_.splits() || !map.trains()) return {};
  if (!norm_Sh) again();
  return tokens_.begin_gather(q, norm_Sh, name);
}

void Block::backward_from(Queue& q, const LinearMap& map, Buffer& norm_Sh, Buffer& dy,
                          SplitTokens::Gathering input, const InputGradient& want,
                          const BlockActivations& a, Tensor inner, Tensor amax,
                          const Deferred& later) const {
  const int64_t T = dy->dim(0);
  input.join(q, norm_Sh ? *norm_Sh : Tensor());
  Buffer room = std::move(input.all);
  // What was gathered makes room for the partial sums of its gradient.
  const Tensor x = room ? *room : tokens_.partial(q, room, T, norm_Sh, want.name);
  if (!defers(a, map, later)) {
    map.backward(q, want.reached ? x : Tensor(), dy, x, inner, a.dropout, amax);
    if (want.reached) tokens_.add(q, norm_Sh, x);
    return;
  }
  const int64_t S = norm_Sh->dim(0);
  Buffer kept = std::move(room ? room : norm_Sh), partial;
  if (!norm_Sh && want.reached) norm_Sh = make(q, S, c_.hidden, want.name);
  Tensor dx;
  if (want.reached) dx = tokens_.partial(q, partial, T, norm_Sh, want.name);
  map.backward_data(q, dx, dy, kept, inner, a.dropout);
  later.products->push_back({&map, std::move(dy), std::move(kept)});
  if (!want.reached) return;
  SplitTokens::Sum sum = tokens_.begin_add(q, norm_Sh, dx);
  later.run_beside(q, &map == &gate_up_ ? 1 : 0);
  sum.join(q);
}

void Block::mlp_backward(Queue& q, BlockActivations& a, Tensor d_residual,
                         const Deferred& later) const {
  const int64_t S = d_residual.dim(0), T = all_tokens(a);
  const auto make_norm = [&] {
    a.norm2_Sh = make(q, S, c_.hidden, "middle norm");
    if (gate_up_.trains())
      rmsnorm(q, a.norm2_Sh, a.rstd2_S, a.mid_Sh, params_.weight(at_.post_norm), eps_);
  };
  SplitTokens::Gathering all = tokens_.begin_gather(q, d_residual, "output gradient of all tokens"),
                         norm;
  if (reach_.gate_up)
    norm = gather_again(q, gate_up_, a.norm2_Sh, "middle norm of all tokens", make_norm);
  // Recomputes missing inputs that a weight gradient needs. Their buffers are then reused: for
  // their gradients, and gate_up's for the gradient of the inner activations.
  if (!a.inner_TF) {
    a.inner_TF = make(q, T, inner_, "feed-forward inner");
    if (down_.trains()) swiglu(q, a.inner_TF, a.gate_up_TF);
  }
  {
    const Tensor dy = all.join(q, d_residual);
    Buffer room = std::move(all.all);
    if (defers(a, down_, later)) {
      Buffer x = std::move(a.inner_TF);
      if (reach_.gate_up) a.inner_TF = make(q, T, inner_, "feed-forward inner gradient");
      down_.backward_data(q, reach_.gate_up ? *a.inner_TF : Tensor(), dy, x, a.down_lora_TR,
                          a.dropout);
      later.products->push_back({&down_, room ? std::move(room) : copy_of(q, dy), std::move(x)});
    } else {
      down_.backward(q, reach_.gate_up ? *a.inner_TF : Tensor(), dy, a.inner_TF, a.down_lora_TR,
                     a.dropout, amax(a, Map::down));
    }
  }
  a.down_lora_TR.release();
  if (!reach_.gate_up) return;
  swiglu_backward(q, a.gate_up_TF, a.inner_TF, a.gate_up_TF);
  a.inner_TF.release();

  if (!a.norm2_Sh) make_norm();
  backward_from(q, gate_up_, a.norm2_Sh, a.gate_up_TF, std::move(norm),
                {reach_.middle, "middle norm gradient"}, a, a.gate_up_lora_TR,
                amax(a, Map::gate_up), later);
  for (Buffer* b : {&a.gate_up_TF, &a.gate_up_lora_TR}) b->release();
  if (!reach_.middle) return;
  rmsnorm_backward(q, d_residual, params_.grad(at_.post_norm), a.norm2_Sh, a.mid_Sh,
                   params_.weight(at_.post_norm), a.rstd2_S, Write::add);
  for (Buffer* b : {&a.norm2_Sh, &a.mid_Sh, &a.rstd2_S}) b->release();
}

void Block::qk_norm_backward(Queue& q, const BlockActivations& a, const Tensor& d_qkv_TW) const {
  const Heads x = split(a.qkv_TW), d = split(d_qkv_TW);
  const QkScales scales = qk_scales(a);
  rmsnorm_backward(q, d.q_THD, params_.grad(at_.q_norm), d.q_THD, x.q_THD,
                   params_.weight(at_.q_norm), scales.q_TH, Write::replace);
  rmsnorm_backward(q, d.k_TKD, params_.grad(at_.k_norm), d.k_TKD, x.k_TKD,
                   params_.weight(at_.k_norm), scales.k_TK, Write::replace);
}

void Block::attend_backward(Queue& q, BlockActivations& a, const Batch& batch,
                            const Tensor& d_attn_TW, const Tensor& d_qkv_TW) const {
  if (!split_heads_.splits()) {
    const Heads h = attended(a), d = split(d_qkv_TW);
    attention_backward(q, d.q_THD, d.k_TKD, d.v_TKD, d_attn_TW.heads(heads_),
                       a.attn_TW->heads(heads_), a.lse_HT, h.q_THD, h.k_TKD, h.v_TKD, batch.mask,
                       scale_, {rope_.cos_PD, rope_.sin_PD, batch.positions_T});
    return;
  }
  {
    const Buffer d_heads =
        make(q, a.heads_CW->dim(0), split_heads_.width(), "gradients of heads of all tokens");
    {
      const Buffer out = split_heads_.outputs_to_heads(q, a.attn_TW);
      const Buffer d_out = split_heads_.outputs_to_heads(q, d_attn_TW);
      const SplitHeads::Heads h = split_heads_.views(a.heads_CW), d = split_heads_.views(d_heads);
      attention_backward(q, d.q_THD, d.k_TKD, d.v_TKD, split_heads_.out_view(d_out),
                         split_heads_.out_view(out), a.lse_HT, h.q_THD, h.k_TKD, h.v_TKD,
                         batch.mask, scale_);
    }
    const Columns d = columns(d_qkv_TW, d_qkv_TW);
    split_heads_.from_heads(q, d_heads, d.q, d.k, d.v);
  }
  rope(q, d_qkv_TW.cols(0, q_width() + kv_width()).heads(heads_ + kv_heads_), rope_.cos_PD,
       rope_.sin_PD, batch.positions_T, Rotation::back);
}

void Block::attention_half_backward(Queue& q, BlockActivations& a, const Batch& batch,
                                    Tensor d_residual, const Deferred& later) const {
  const int64_t T = batch.tokens(), S = d_residual.dim(0);
  const bool later_o = defers(a, o_, later);
  const auto make_norm = [&] {
    if (qkv_.trains())
      norm_input(q, a);
    else
      a.norm1_Sh = make(q, S, c_.hidden, "input norm");
  };
  SplitTokens::Gathering all = tokens_.begin_gather(q, d_residual, "middle gradient of all tokens"),
                         norm;
  if (reach_.qkv) norm = gather_again(q, qkv_, a.norm1_Sh, "input norm of all tokens", make_norm);
  later.run_beside(q);
  Buffer d_qkv, d_o;
  {
    const Tensor dy = all.join(q, d_residual);
    Buffer room = std::move(all.all);
    if (later_o && !room) d_o = copy_of(q, dy);
    Buffer d_attn;
    if (reach_.qkv) d_attn = make(q, T, q_width(), "attention output gradient");
    if (later_o)
      o_.backward_data(q, d_attn, dy, a.attn_TW, a.o_lora_TR, a.dropout);
    else
      o_.backward(q, d_attn, dy, a.attn_TW, a.o_lora_TR, a.dropout, amax(a, Map::o));
    a.o_lora_TR.release();
    if (later_o && room) d_o = std::move(room);
    room.release();
    if (!reach_.qkv) {
      if (later_o) later.products->push_back({&o_, std::move(d_o), std::move(a.attn_TW)});
      return;
    }
    d_qkv = make(q, T, q_width() + 2 * kv_width(), "query, key and value gradients");
    attend_backward(q, a, batch, d_attn, d_qkv);
  }
  if (later_o) later.products->push_back({&o_, std::move(d_o), std::move(a.attn_TW)});
  for (Buffer* b : {&a.attn_TW, &a.lse_HT, &a.qk_TW, &a.heads_CW}) b->release();
  if (c_.qk_norm) qk_norm_backward(q, a, d_qkv);
  for (Buffer* b : {&a.qkv_TW, &a.qk_rstd_TH}) b->release();

  if (!a.norm1_Sh) make_norm();
  backward_from(q, qkv_, a.norm1_Sh, d_qkv, std::move(norm), {reach_.input, "input norm gradient"},
                a, a.qkv_lora_TR, amax(a, Map::qkv), later);
  d_qkv.release();
  a.qkv_lora_TR.release();
  if (!reach_.input) return;
  rmsnorm_backward(q, d_residual, params_.grad(at_.input_norm), a.norm1_Sh, a.x_Sh,
                   params_.weight(at_.input_norm), a.rstd1_S, Write::add);
}

}  // namespace capstan
