// Ops alone on this machine's GPU, at TinyLlama's sizes with 4,096 tokens: time, and the rates that
// the accounts give. Bytes are those that must move at the least.
//
// usage: bench_gpu_ops [NAME]     (only ops whose name has NAME in it)

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string_view>
#include <vector>

#include "ops/attention.h"
#include "ops/dropped_linear.h"
#include "ops/elementwise.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/linear_fp8.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/swiglu.h"

namespace capstan {
namespace {

constexpr int64_t kTokens = 4096, kHidden = 2048, kInner = 5632, kVocab = 32000;
constexpr int64_t kHeads = 32, kKeyHeads = 4, kHead = 64, kLength = 2048;
constexpr int kRepeats = 50;

class Operands {
 public:
  explicit Operands(Queue& q) : q_(q) {}

  Tensor random(DType type, const Shape& shape) {
    const Tensor t = make(type, shape);
    fill_normal(q_, t, 1, {.seed = buffers_.size()});
    return t;
  }
  Tensor filled(const Shape& shape, float value) {
    const Tensor t = make(DType::f32, shape);
    fill(q_, t, value);
    return t;
  }
  Tensor of(const std::vector<int32_t>& values) {
    const Tensor t = make(DType::i32, {std::ssize(values)});
    q_.upload(t, values.data());
    return t;
  }
  Tensor make(DType type, const Shape& shape) {
    buffers_.push_back(q_.arena().make(Category::data, type, shape, "operand"));
    return *buffers_.back();
  }

 private:
  Queue& q_;
  std::vector<Buffer> buffers_;
};

using Call = std::function<void(Queue&)>;
using Prepare = std::function<Call(Operands&, DType)>;

void call_once(Queue& q, const Call& call) {
  const auto phase = q.arena().phase("op");
  call(q);
}

MemoryPlan plan_of(const Prepare& prepare, DType type) {
  Arena arena;
  Queue q(Device::sim, arena, {.device = Device::cuda});
  Operands operands(q);
  call_once(q, prepare(operands, type));
  return arena.plan();
}

void measure(std::string_view name, DType type, const Prepare& prepare) {
  Arena arena(plan_of(prepare, type), Device::cuda);
  Queue q(Device::cuda, arena);
  Operands operands(q);
  const Call call = prepare(operands, type);
  for (int i = 0; i < 3; ++i) call_once(q, call);
  q.synchronize();
  q.reset_totals();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRepeats; ++i) call_once(q, call);
  q.synchronize();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / kRepeats;
  const Cost cost = q.total();
  fmt::print("{:<24} {:<5} {:>9.1f} us {:>8.0f} GB/s {:>8.1f} TFLOP/s\n", name, name_of(type),
             seconds * 1e6, cost.bytes / kRepeats / seconds * 1e-9,
             cost.flops / kRepeats / seconds * 1e-12);
}

// ---- the ops -------------------------------------------------------------------------------

Call norm(Operands& o, DType type) {
  const Tensor y = o.random(type, {kTokens, kHidden}), sum = o.random(type, {kTokens, kHidden});
  const Tensor x = o.random(type, {kTokens, kHidden}), residual = o.random(type, sum.shape());
  const Tensor w = o.random(type, {kHidden}), rstd = o.random(DType::f32, {kTokens});
  return [=](Queue& q) { add_rmsnorm(q, y, sum, rstd, x, residual, w, 1e-5f); };
}

Call norm_backward(Operands& o, DType type) {
  const Tensor dx = o.random(type, {kTokens, kHidden}), dy = o.random(type, dx.shape());
  const Tensor x = o.random(type, dx.shape()), w = o.random(type, {kHidden});
  const Tensor dw = o.random(type, {kHidden}), rstd = o.random(DType::f32, {kTokens});
  return [=](Queue& q) { rmsnorm_backward(q, dx, dw, dy, x, w, rstd, Write::add); };
}

// Within heads of 128, as Qwen3 has it.
Call head_norm(Operands& o, DType type) {
  const Tensor qkv = o.random(type, {kTokens, 6144}), y = o.random(type, {kTokens, 4096});
  const Tensor w = o.random(type, {128}), rstd = o.random(DType::f32, {kTokens, 32});
  const Tensor x = qkv.cols(0, 4096).heads(32), to = y.heads(32);
  return [=](Queue& q) { rmsnorm(q, to, rstd, x, w, 1e-5f); };
}

Call head_norm_backward(Operands& o, DType type) {
  const Tensor qkv = o.random(type, {kTokens, 6144}), dy = o.random(type, {kTokens, 4096});
  const Tensor w = o.random(type, {128}), dw = o.random(type, {128});
  const Tensor rstd = o.random(DType::f32, {kTokens, 32}), x = qkv.cols(0, 4096).heads(32);
  return [=](Queue& q) { rmsnorm_backward(q, x, dw, dy.heads(32), x, w, rstd, Write::replace); };
}

Call gate(Operands& o, DType type) {
  const Tensor y = o.random(type, {kTokens, kInner}), gu = o.random(type, {kTokens, 2 * kInner});
  return [=](Queue& q) { swiglu(q, y, gu); };
}

Call gate_backward(Operands& o, DType type) {
  const Tensor dy = o.random(type, {kTokens, kInner}), gu = o.random(type, {kTokens, 2 * kInner});
  return [=](Queue& q) { swiglu_backward(q, gu, dy, gu); };
}

Call turn(Operands& o, DType type) {
  const Tensor x = o.random(type, {kTokens, (kHeads + kKeyHeads) * kHead});
  const Tensor cosines = o.random(DType::f32, {kLength, kHead / 2});
  const Tensor sines = o.random(DType::f32, {kLength, kHead / 2});
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < kTokens; ++t) positions.push_back(t % static_cast<int32_t>(kLength));
  const Tensor at = o.of(positions);
  return [=](Queue& q) {
    rope(q, x.heads(kHeads + kKeyHeads), cosines, sines, at, Rotation::forward);
  };
}

std::vector<int32_t> some_ids() {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t) ids.push_back(static_cast<int32_t>(t * t % kVocab));
  return ids;
}

Call embed_backward(Operands& o, DType type) {
  const Tensor dw = o.random(type, {kVocab, kHidden}), dy = o.random(type, {kTokens, kHidden});
  const Tensor ids = o.of(some_ids());
  return [=](Queue& q) { embedding_backward(q, dw, dy, ids); };
}

Call head_backward(Operands& o, DType type) {
  const Tensor x = o.random(type, {kTokens, kHidden}), dx = o.random(type, {kTokens, kHidden});
  const Tensor w = o.random(type, {kVocab, kHidden}), dw = o.random(type, {kVocab, kHidden});
  const Tensor labels = o.of(some_ids()), loss = o.make(DType::f64, {1});
  return [=](Queue& q) { head_loss_backward(q, loss, dx, dw, x, w, labels, 1.0f / kTokens); };
}

struct AttentionOperands {
  Tensor qkv, o, lse;
  AttentionMask mask;

  AttentionOperands(Operands& from, DType type)
      : qkv(from.random(type, {kTokens, (kHeads + 2 * kKeyHeads) * kHead})),
        o(from.random(type, {kTokens, kHeads, kHead})),
        lse(from.random(DType::f32, {kHeads, kTokens})),
        mask{from.of({0, kLength, kTokens}), 2, kLength, 0} {}
  Tensor part(const Tensor& t, int64_t first, int64_t count) const {
    return t.cols(first * kHead, count * kHead).heads(count);
  }
  Tensor q(const Tensor& t) const { return part(t, 0, kHeads); }
  Tensor k(const Tensor& t) const { return part(t, kHeads, kKeyHeads); }
  Tensor v(const Tensor& t) const { return part(t, kHeads + kKeyHeads, kKeyHeads); }
};

Call attend(Operands& o, DType type) {
  const AttentionOperands a(o, type);
  return [=](Queue& q) {
    attention(q, a.o, a.lse, a.q(a.qkv), a.k(a.qkv), a.v(a.qkv), a.mask, 0.125f);
  };
}

Call attend_backward(Operands& o, DType type) {
  const AttentionOperands a(o, type);
  const Tensor d = o.random(type, a.qkv.shape()), d_o = o.random(type, a.o.shape());
  return [=](Queue& q) {
    attention_backward(q, a.q(d), a.k(d), a.v(d), d_o, a.o, a.lse, a.q(a.qkv), a.k(a.qkv),
                       a.v(a.qkv), a.mask, 0.125f);
  };
}

// The widest map of a block.
struct MapOperands {
  Tensor x, w, y, dx, dw, amax;

  MapOperands(Operands& o, DType type)
      : x(o.random(type, {kTokens, kHidden})),
        w(o.random(type, {2 * kInner, kHidden})),
        y(o.random(type, {kTokens, 2 * kInner})),
        dx(o.random(type, {kTokens, kHidden})),
        dw(o.make(DType::f32, {2 * kInner, kHidden})),
        amax(o.filled({2}, 6)) {}  // about that, among millions of normal numbers
};

Call map(Operands& o, DType type) {
  const MapOperands m(o, type);
  return [=](Queue& q) { linear(q, m.y, m.x, m.w, {}); };
}

Call map_backward(Operands& o, DType type) {
  const MapOperands m(o, type);
  return [=](Queue& q) {
    linear_backward_weight(q, m.dw, {}, m.y, m.x, Write::replace);
    linear_backward_data(q, m.dx, m.y, m.w);
  };
}

Call map_fp8(Operands& o, DType type) {
  const MapOperands m(o, type);
  return [=](Queue& q) { linear_fp8(q, m.y, m.x, m.w, {}, m.amax); };
}

Call map_fp8_backward(Operands& o, DType type) {
  const MapOperands m(o, type);
  return [=](Queue& q) {
    linear_fp8_backward(q, m.dx, m.dw, {}, m.y, m.x, m.w, m.amax, Write::replace);
  };
}

// The first maps of the adapters of queries, keys and values, of rank 32.
struct AdapterOperands {
  Tensor x, dx, y, w, dw;
  RngKey key{.seed = 1};

  AdapterOperands(Operands& from, DType type)
      : x(from.random(type, {kTokens, kHidden})),
        dx(from.random(type, x.shape())),
        y(from.random(type, {kTokens, 96})),
        w(from.random(type, {96, kHidden})),
        dw(from.random(type, w.shape())) {}
};

Call adapt(Operands& o, DType type) {
  const AdapterOperands a(o, type);
  return [=](Queue& q) { dropped_linear(q, a.y, a.x, a.w, 1, {0.05f, a.key}); };
}

Call adapt_backward_data(Operands& o, DType type) {
  const AdapterOperands a(o, type);
  return [=](Queue& q) { dropped_linear_backward_data(q, a.dx, a.y, a.w, {0.05f, a.key}); };
}

Call adapt_backward_weight(Operands& o, DType type) {
  const AdapterOperands a(o, type);
  return [=](Queue& q) { dropped_linear_backward_weight(q, a.dw, a.y, a.x, {0.05f, a.key}); };
}

struct Case {
  std::string_view name;
  Prepare prepare;
};
const std::vector<Case> kCases = {
    {"add_rmsnorm", norm},
    {"rmsnorm_backward", norm_backward},
    {"head_norm", head_norm},
    {"head_norm_backward", head_norm_backward},
    {"swiglu", gate},
    {"swiglu_backward", gate_backward},
    {"rope", turn},
    {"embedding_backward", embed_backward},
    {"attention", attend},
    {"attention_backward", attend_backward},
    {"head_loss_backward", head_backward},
    {"linear", map},
    {"linear_backward", map_backward},
    {"dropped_linear", adapt},
    {"dropped_linear_backward_data", adapt_backward_data},
    {"dropped_linear_backward_weight", adapt_backward_weight},
    {"linear_fp8", map_fp8},
    {"linear_fp8_backward", map_fp8_backward},
};

// A graph of as many kernels as a step of 22 blocks has, whole and cut where a rank of several
// would sum or gather a unit.
void graph_parts() {
  constexpr int kKernels = 1056;
  Arena arena(Arena::Heap{}, Device::cuda);
  Queue q(Device::cuda, arena);
  Operands o(q);
  const Tensor x = o.random(DType::bf16, {kTokens, 2 * kHidden}),
               y = o.make(DType::bf16, {kTokens, kHidden});
  for (const int cuts : {0, 22, 44, 88}) {
    double best = 1e9;
    for (int call = 0; call < kRepeats; ++call) {
      q.synchronize();
      const auto start = std::chrono::steady_clock::now();
      q.graph({cuts}, [&] {
        for (int k = 0; k < kKernels; ++k) {
          if (cuts > 0 && k % (kKernels / cuts) == 0) q.eager([] {});
          swiglu(q, y, x);
        }
      });
      q.synchronize();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    fmt::print("graph_parts: {} kernels, cut {} times: {:.3f} ms\n", kKernels, cuts, 1e3 * best);
  }
}

int run(std::string_view wanted) {
  require(cuda_present(), Fault::device, "no NVIDIA GPU on this machine");
  if (std::string_view("graph_parts").find(wanted) != std::string_view::npos) graph_parts();
  for (const Case& c : kCases)
    if (c.name.find(wanted) != std::string_view::npos)
      for (const DType type : {DType::bf16, DType::f32}) measure(c.name, type, c.prepare);
  return 0;
}

}  // namespace
}  // namespace capstan

int main(int count, char** arguments) {
  try {
    return capstan::run(count > 1 ? arguments[1] : "");
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_gpu_ops: {}\n", e.what());
    return 1;
  }
}
