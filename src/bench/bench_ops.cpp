#include "bench/bench_ops.h"

#include <cmath>
#include <numeric>

#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/head_loss.h"
#include "ops/linear_fp8.h"
#include "ops/optimizer.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace capstan {
namespace {

constexpr float kLargest = 6;  // about that, among millions of normal numbers

struct AttentionOperands {
  Tensor qkv, o, lse;
  AttentionMask mask;
  int64_t heads, kv_heads, width;
  float scale;

  AttentionOperands(Operands& from, DType type, const BenchSizes& s, const Documents& documents)
      : heads(s.heads), kv_heads(s.kv_heads), width(s.head_dim) {
    const int64_t tokens = documents.count * documents.length;
    qkv = from.random(type, {tokens, (heads + 2 * kv_heads) * width});
    o = from.random(type, {tokens, heads, width});
    lse = from.zeros(DType::f32, {heads, tokens});
    std::vector<int32_t> starts;
    for (int64_t d = 0; d <= documents.count; ++d)
      starts.push_back(static_cast<int32_t>(d * documents.length));
    mask = {from.of(starts), documents.count, documents.length, 0};
    scale = 1.0f / std::sqrt(static_cast<float>(width));
  }
  Tensor q(const Tensor& t) const { return t.cols(0, heads * width).heads(heads); }
  Tensor k(const Tensor& t) const {
    return t.cols(heads * width, kv_heads * width).heads(kv_heads);
  }
  Tensor v(const Tensor& t) const {
    return t.cols((heads + kv_heads) * width, kv_heads * width).heads(kv_heads);
  }
  void forward(Queue& on) const { attention(on, o, lse, q(qkv), k(qkv), v(qkv), mask, scale); }
};

}  // namespace

Precision precision_of(const NumberType& t) {
  if (t.fp8) return Precision::fp8_mixed;
  if (t.type == DType::f16) return Precision::f16_mixed;
  return t.type == DType::bf16 ? Precision::bf16_mixed : Precision::f32_true;
}

OpSetup product(const NumberType& t, int64_t tokens, int64_t outputs, int64_t inputs) {
  return [=](Operands& o) -> OpCall {
    const Tensor y = o.zeros(t.type, {tokens, outputs}), x = o.random(t.type, {tokens, inputs});
    const Tensor w = o.weights(t.type, {outputs, inputs});
    if (!t.fp8) return [=](Queue& q) { linear(q, y, x, w, {}); };
    const Tensor amax = o.zeros(DType::f32, {2});
    return [=](Queue& q) { linear_fp8(q, y, x, w, {}, amax); };
  };
}

OpSetup product_backward(const NumberType& t, int64_t tokens, int64_t outputs, int64_t inputs) {
  return [=](Operands& o) -> OpCall {
    const Tensor dy = o.random(t.type, {tokens, outputs}), x = o.random(t.type, {tokens, inputs});
    const Tensor w = o.weights(t.type, {outputs, inputs}), dx = o.zeros(t.type, x.shape());
    if (t.fp8) {
      const Tensor dw = o.zeros(DType::f32, w.shape());
      const Tensor amax = o.filled(DType::f32, {2}, kLargest);
      return [=](Queue& q) { linear_fp8_backward(q, dx, dw, {}, dy, x, w, amax, Write::replace); };
    }
    const Tensor dw = o.zeros(t.type, w.shape());
    return [=](Queue& q) {
      linear_backward_data(q, dx, dy, w);
      linear_backward_weight(q, dw, {}, dy, x);
    };
  };
}

OpSetup head(DType type, const BenchSizes& s) {
  return [type, tokens = s.head_tokens, hidden = s.hidden, vocab = s.vocab](Operands& o) -> OpCall {
    const Tensor x = o.random(type, {tokens, hidden}), dx = o.zeros(type, x.shape());
    const Tensor w = o.weights(type, {vocab, hidden}), dw = o.zeros(type, w.shape());
    std::vector<int32_t> ids;
    for (int64_t t = 0; t < tokens; ++t) ids.push_back(static_cast<int32_t>(t * t % vocab));
    const Tensor labels = o.of(ids), loss = o.zeros(DType::f64, {1});
    const float scale = 1.0f / static_cast<float>(tokens);
    return [=](Queue& q) { head_loss_backward(q, loss, dx, dw, x, w, labels, scale); };
  };
}

OpSetup attend(DType type, const BenchSizes& s, const Documents& documents) {
  return [type, s, documents](Operands& o) -> OpCall {
    const AttentionOperands a(o, type, s, documents);
    return [=](Queue& q) { a.forward(q); };
  };
}

OpSetup attend_backward(DType type, const BenchSizes& s, const Documents& documents) {
  return [type, s, documents](Operands& o) -> OpCall {
    const AttentionOperands a(o, type, s, documents);
    const Tensor d = o.zeros(type, a.qkv.shape()), d_o = o.random(type, a.o.shape());
    return [=](Queue& q) {
      attention_backward(q, a.q(d), a.k(d), a.v(d), d_o, a.o, a.lse, a.q(a.qkv), a.k(a.qkv),
                         a.v(a.qkv), a.mask, a.scale);
    };
  };
}

// The ops of a block between its products.
OpSetup between_products(DType type, const BenchSizes& s) {
  return [type, s](Operands& o) -> OpCall {
    const Shape wide{s.tokens, s.hidden}, inner{s.tokens, s.inner}, both{s.tokens, 2 * s.inner};
    const Tensor x = o.random(type, wide), residual = o.random(type, wide);
    const Tensor y = o.zeros(type, wide), sum = o.zeros(type, wide), dx = o.zeros(type, wide);
    const Tensor w = o.random(type, {s.hidden}), dw = o.zeros(type, {s.hidden});
    const Tensor rstd = o.ones(DType::f32, {s.tokens});
    const Tensor gu = o.random(type, both), dgu = o.zeros(type, both);
    const Tensor a = o.zeros(type, inner), da = o.random(type, inner);
    const int64_t heads = s.hidden / s.head_dim;
    const Tensor turned = o.random(type, {s.tokens, heads * s.head_dim}).heads(heads);
    const Tensor cosines = o.ones(DType::f32, {s.tokens, s.head_dim / 2});
    const Tensor sines = o.zeros(DType::f32, {s.tokens, s.head_dim / 2});
    std::vector<int32_t> places(static_cast<size_t>(s.tokens));
    std::iota(places.begin(), places.end(), 0);
    const Tensor positions = o.of(places);
    return [=](Queue& q) {
      add_rmsnorm(q, y, sum, rstd, x, residual, w, 1e-5f);
      rmsnorm_backward(q, dx, dw, x, residual, w, rstd, Write::replace);
      swiglu(q, a, gu);
      swiglu_backward(q, dgu, da, gu);
      rope(q, turned, cosines, sines, positions, Rotation::forward);
    };
  };
}

OpSetup update(const NumberType& t, const BenchSizes& s) {
  return [types = types_of(precision_of(t)),
          shape = Shape{2 * s.inner, s.hidden}](Operands& o) -> OpCall {
    OptimizerOperands p{.weight = o.random(types.compute, shape),
                        .master = types.has_master() ? o.random(types.master, shape) : Tensor(),
                        .grad = o.random(types.grad, shape),
                        .m = o.zeros(types.state, shape),
                        .v = o.zeros(types.state, shape),
                        .grad_scale = o.ones(DType::f32, {1})};
    const std::vector<AdamWParameter> all = {{p, {.lr = 1e-6f}}};
    return [=](Queue& q) { adamw(q, all); };
  };
}

OpSetup update_over_the_bus(const BenchSizes& s) {
  return [shape = Shape{2 * s.inner, s.hidden}](Operands& o) -> OpCall {
    const OptimizerOperands p{.weight = o.random(DType::f32, shape),
                              .master = {},
                              .grad = o.random(DType::f32, shape),
                              .m = o.in_host_memory(DType::f32, shape),
                              .v = o.in_host_memory(DType::f32, shape),
                              .grad_scale = o.ones(DType::f32, {1})};
    const std::vector<AdamWParameter> all = {{p, {.lr = 1e-6f}}};
    return [=](Queue& q) { adamw(q, all); };
  };
}

OpSetup tiny_ops() {
  return [](Operands& o) -> OpCall {
    const Tensor x = o.ones(DType::f32, {64}), y = o.zeros(DType::f32, {64});
    return [=](Queue& q) {
      for (int i = 0; i < kTinyOps; ++i) scale(q, y, x, 0.5f);
    };
  };
}

OpSetup copying(int64_t bytes, Way way) {
  return [=](Operands& o) -> OpCall {
    const auto near = [&] { return o.zeros(DType::u8, {bytes}); };
    const auto far = [&] { return o.in_host_memory(DType::u8, {bytes}); };
    const Tensor y = way == Way::to_host ? far() : near();
    const Tensor x = way == Way::to_device ? far() : near();
    return [=](Queue& q) { copy(q, y, x); };
  };
}

}  // namespace capstan
