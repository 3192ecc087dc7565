// Each op alone, on sizes of a 110M model with 2,048 tokens: items are FLOPs, bytes as accounted.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "base/parallel.h"
#include "ops/attention.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/optimizer.h"
#include "ops/quantize.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace capstan {
namespace {

constexpr int64_t kTokens = 2048, kHidden = 768, kInner = 2048, kHeads = 12, kVocab = 32000;

// Memory, random values, and the rates that the accounts give.
class Bench {
 public:
  explicit Bench(benchmark::State& state)
      : state_(state), type_(state.range(0) == 0 ? DType::f32 : DType::bf16) {}
  ~Bench() {
    const Cost cost = q_.total();
    state_.counters["FLOP/s"] = {cost.flops, benchmark::Counter::kIsRate};
    state_.counters["B/s"] = {cost.bytes, benchmark::Counter::kIsRate};
  }

  Tensor make(const Shape& shape) { return make(type_, shape); }
  Tensor make(DType type, const Shape& shape) {
    buffers_.push_back(arena_.make(Category::data, type, shape, "operand"));
    if (type == DType::f32 || type == DType::bf16)
      fill_normal(q_, buffers_.back(), 1, {.seed = buffers_.size()});
    else
      std::fill_n(static_cast<std::byte*>(buffers_.back()->raw()), buffers_.back()->nbytes(),
                  std::byte{0});
    return *buffers_.back();
  }
  Queue& queue() { return q_; }
  template <class Call>
  void run(Call call) {
    q_.reset_totals();
    for (auto _ : state_) call(q_);
  }

 private:
  benchmark::State& state_;
  DType type_;
  Arena arena_{Arena::Heap{}};
  Queue q_{Device::cpu, arena_};
  std::vector<Buffer> buffers_;
};

void op_linear(benchmark::State& state) {
  Bench b(state);
  const Tensor y = b.make({kTokens, kInner}), x = b.make({kTokens, kHidden});
  const Tensor w = b.make({kInner, kHidden});
  b.run([&](Queue& q) { linear(q, y, x, w, {}); });
}

void op_linear_one_token(benchmark::State& state) {
  Bench b(state);
  const Tensor y = b.make({1, kInner}), x = b.make({1, kHidden}), w = b.make({kInner, kHidden});
  b.run([&](Queue& q) { linear(q, y, x, w, {}); });
}

void op_linear_backward_weight(benchmark::State& state) {
  Bench b(state);
  const Tensor dy = b.make({kTokens, kInner}), x = b.make({kTokens, kHidden});
  const Tensor dw = b.make({kInner, kHidden});
  b.run([&](Queue& q) { linear_backward_weight(q, dw, {}, dy, x); });
}

void op_rmsnorm(benchmark::State& state) {
  Bench b(state);
  const Tensor y = b.make({kTokens, kHidden}), x = b.make({kTokens, kHidden});
  const Tensor w = b.make({kHidden}), rstd = b.make(DType::f32, {kTokens});
  b.run([&](Queue& q) { rmsnorm(q, y, rstd, x, w, 1e-5f); });
}

void op_rmsnorm_backward(benchmark::State& state) {
  Bench b(state);
  const Tensor dx = b.make({kTokens, kHidden}), dy = b.make({kTokens, kHidden});
  const Tensor x = b.make({kTokens, kHidden}), w = b.make({kHidden}), dw = b.make({kHidden});
  const Tensor rstd = b.make(DType::f32, {kTokens});
  b.run([&](Queue& q) { rmsnorm_backward(q, dx, dw, dy, x, w, rstd, Write::add); });
}

void op_rope(benchmark::State& state) {
  Bench b(state);
  const Tensor x = b.make({kTokens, kHidden}).heads(kHeads);
  const Tensor cos = b.make(DType::f32, {256, kHidden / kHeads / 2});
  const Tensor sin = b.make(DType::f32, {256, kHidden / kHeads / 2});
  const Tensor positions = b.make(DType::i32, {kTokens});
  b.run([&](Queue& q) { rope(q, x, cos, sin, positions, Rotation::forward); });
}

void op_swiglu(benchmark::State& state) {
  Bench b(state);
  const Tensor y = b.make({kTokens, kInner}), gu = b.make({kTokens, 2 * kInner});
  b.run([&](Queue& q) { swiglu(q, y, gu); });
}

struct AttentionOperands {
  Tensor qkv, o, lse, starts;
  AttentionMask mask;

  explicit AttentionOperands(Bench& b) {
    constexpr int64_t kDocuments = 8;
    qkv = b.make({kTokens, 3 * kHidden});
    o = b.make({kTokens, kHidden}).heads(kHeads);
    lse = b.make(DType::f32, {kHeads, kTokens});
    starts = b.make(DType::i32, {kDocuments + 1});
    for (int32_t d = 0; d <= kDocuments; ++d)
      starts.as<int32_t>()[d] = d * static_cast<int32_t>(kTokens / kDocuments);
    mask = {starts, kDocuments, kTokens / kDocuments, 0};
  }
  Tensor part(int64_t i) const { return qkv.cols(i * kHidden, kHidden).heads(kHeads); }
};

void op_attention(benchmark::State& state) {
  Bench b(state);
  const AttentionOperands a(b);
  b.run(
      [&](Queue& q) { attention(q, a.o, a.lse, a.part(0), a.part(1), a.part(2), a.mask, 0.125f); });
}

void op_attention_backward(benchmark::State& state) {
  Bench b(state);
  const AttentionOperands a(b);
  const Tensor d = b.make({kTokens, 3 * kHidden});
  const auto part = [&](int64_t i) { return d.cols(i * kHidden, kHidden).heads(kHeads); };
  b.run([&](Queue& q) {
    attention_backward(q, part(0), part(1), part(2), a.o, a.o, a.lse, a.part(0), a.part(1),
                       a.part(2), a.mask, 0.125f);
  });
}

void op_head_loss_backward(benchmark::State& state) {
  Bench b(state);
  const Tensor x = b.make({512, kHidden}), dx = b.make({512, kHidden});
  const Tensor w = b.make({kVocab, kHidden}), dw = b.make({kVocab, kHidden});
  const Tensor labels = b.make(DType::i32, {512}), loss = b.make(DType::f64, {1});
  b.run([&](Queue& q) { head_loss_backward(q, loss, dx, dw, x, w, labels, 1.0f / 512); });
}

void op_adamw(benchmark::State& state) {
  Bench b(state);
  const Shape shape{kInner, kHidden};
  const OptimizerOperands p{b.make(shape),          {}, b.make(shape), b.make(shape), b.make(shape),
                            b.make(DType::f32, {1})};
  std::fill_n(static_cast<std::byte*>(p.v.raw()), p.v.nbytes(), std::byte{0});
  b.run([&](Queue& q) { adamw(q, p, {.lr = 1e-6f}); });
}

// As for state that a GPU's run keeps in host memory: f32 masters beside weights in `type`, far
// beyond the caches.
void op_adamw_masters(benchmark::State& state) {
  Bench b(state);
  const Shape shape{1 << 27};
  const Tensor weight = b.make(shape), master = b.make(DType::f32, shape);
  const OptimizerOperands p{weight,
                            master,
                            b.make(DType::f32, shape),
                            b.make(DType::f32, shape),
                            b.make(DType::f32, shape),
                            b.make(DType::f32, {1})};
  std::fill_n(static_cast<std::byte*>(p.v.raw()), p.v.nbytes(), std::byte{0});
  b.run([&](Queue& q) { adamw(q, p, {.lr = 1e-6f}); });
}

void op_adamw8bit(benchmark::State& state) {
  Bench b(state);
  const Shape shape{kInner, kHidden};
  const int64_t blocks = adamw8bit_blocks(shape.numel());
  const OptimizerOperands p{
      b.make(shape), {}, b.make(shape), b.make(DType::u8, shape), b.make(DType::u8, shape), {}};
  const MomentScales absmax{b.make(DType::f32, {blocks}), b.make(DType::f32, {blocks})};
  b.run([&](Queue& q) { adamw8bit(q, p, absmax, {.lr = 1e-6f}); });
}

// A frozen matrix as wide as the model, far beyond the caches.
constexpr int64_t kRows = 16384;

// Bytes read and written per second.
void count_traffic(benchmark::State& state, int64_t read, int64_t written) {
  const auto rate = [](int64_t bytes) {
    return benchmark::Counter(static_cast<double>(bytes),
                              benchmark::Counter::kIsIterationInvariantRate);
  };
  state.counters["read"] = rate(read);
  state.counters["written"] = rate(written);
}

void op_dequantize(benchmark::State& state, Quantize kind) {
  Bench b(state);
  QuantizedMatrix m{.kind = kind, .shape = {kRows, kHidden}, .count = 1, .parts = {}};
  const QuantizedSizes sizes = quantized_sizes(kind, kRows, kHidden);
  m.parts[0] = {0, kRows, b.make(DType::u8, {sizes.packed}),
                b.make(sizes.absmax_type, {sizes.absmax}),
                sizes.scale > 0 ? b.make(DType::f32, {sizes.scale}) : Tensor()};
  const Tensor y = b.make({kRows, kHidden});
  quantize(b.queue(), m, 0, y);
  b.run([&](Queue& q) { dequantize(q, y, m, 0); });
  count_traffic(state, m.nbytes(), y.nbytes());
}

// What memory allows: as many bytes as dequantizing writes.
void op_copy(benchmark::State& state) {
  Bench b(state);
  const Tensor y = b.make({kRows, kHidden}), x = b.make({kRows, kHidden});
  b.run([&](Queue&) {
    parallel_for(y.nbytes(), 4096, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<std::byte*>(y.raw()) + begin,
                  static_cast<const std::byte*>(x.raw()) + begin, static_cast<size_t>(end - begin));
    });
  });
  count_traffic(state, x.nbytes(), y.nbytes());
}

#define CAPSTAN_BENCH(op) \
  BENCHMARK(op)->ArgName("bf16")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond)->UseRealTime()
CAPSTAN_BENCH(op_linear);
CAPSTAN_BENCH(op_linear_one_token);
CAPSTAN_BENCH(op_linear_backward_weight);
CAPSTAN_BENCH(op_rmsnorm);
CAPSTAN_BENCH(op_rmsnorm_backward);
CAPSTAN_BENCH(op_rope);
CAPSTAN_BENCH(op_swiglu);
CAPSTAN_BENCH(op_attention);
CAPSTAN_BENCH(op_attention_backward);
CAPSTAN_BENCH(op_head_loss_backward);
CAPSTAN_BENCH(op_adamw);
CAPSTAN_BENCH(op_adamw_masters);
CAPSTAN_BENCH(op_adamw8bit);
CAPSTAN_BENCH(op_copy);
#define CAPSTAN_BENCH_KIND(kind)                         \
  BENCHMARK_CAPTURE(op_dequantize, kind, Quantize::kind) \
      ->ArgName("bf16")                                  \
      ->Arg(0)                                           \
      ->Arg(1)                                           \
      ->Unit(benchmark::kMillisecond)                    \
      ->UseRealTime()
CAPSTAN_BENCH_KIND(nf4);
CAPSTAN_BENCH_KIND(nf4_dq);
CAPSTAN_BENCH_KIND(int8);

}  // namespace
}  // namespace capstan
