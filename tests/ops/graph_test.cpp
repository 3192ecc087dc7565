#include "ops/dropped_linear.h"
#include "ops/elementwise.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/reference.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Graph);

// Buffers in memory that is planned: recording allocates nothing.
struct Planned {
  Queue& q;

  Buffer make(DType type, const Shape& shape) const {
    return q.arena().make(Category::data, type, shape, "test");
  }
};

// A product, a loss and their gradients.
struct Work : Planned {
  static constexpr int64_t kTokens = 40, kDim = 64, kVocab = 96;
  Buffer x, w, y, dx, dw, labels, loss, scale;

  explicit Work(Queue& queue)
      : Planned{queue},
        x(make(DType::f32, {kTokens, kDim})),
        w(make(DType::f32, {kVocab, kDim})),
        y(make(DType::f32, {kTokens, kVocab})),
        dx(make(DType::f32, {kTokens, kDim})),
        dw(make(DType::f32, {kVocab, kDim})),
        labels(make(DType::i32, {kTokens})),
        loss(make(DType::f64, {1})),
        scale(make(DType::f32, {1})) {}
  void compute(const Scalar& factor) const {
    linear(q, y, x, w, {});
    head_loss_backward(q, loss, dx, dw, x, w, labels, factor);
  }
  // What it computes from a random input, as a graph or op by op.
  std::vector<Values> results(uint64_t seed, float factor, bool graph) const {
    const Values input = normal_values(kTokens * kDim, seed, 1);
    const std::vector<float> narrow(input.begin(), input.end());
    q.upload(x, narrow.data());
    q.upload(scale, &factor);
    fill(q, dw, 0);
    const auto phase = q.arena().phase("work");
    if (graph)
      q.graph({kTokens}, [&] { compute(Scalar(*scale)); });
    else
      compute(factor);
    return {values_of(q, y), values_of(q, dx), values_of(q, dw)};
  }
};

// The first time op by op, the second recorded, then replayed: each call computes with what is in
// its buffers then, and asks for the same scratch.
TEST_P(Graph, EveryCallComputesWithWhatIsThere) {
  Arena notes;
  Queue imagined(Device::sim, notes, {.device = GetParam()});
  Work(imagined).results(0, 1, true);
  Arena arena(notes.plan(), GetParam());
  Queue q(GetParam(), arena);
  const Work work(q);
  fill_normal(q, work.w, 1, {.seed = 5});
  for (uint64_t call = 0; call < 6; ++call) {
    const float factor = 1.0f / static_cast<float>(call + 1);
    const auto found = work.results(call, factor, true);
    EXPECT_EQ(found, work.results(call, factor, false)) << call;
    EXPECT_GT(norm(found[2]), 0);
  }
}

// What draws at random.
struct Drops : Planned {
  static constexpr int64_t kSize = 50, kTokens = 70, kInputs = 128, kOutputs = 16;
  Buffer x, y, input, w, inner, key;

  explicit Drops(Queue& queue)
      : Planned{queue},
        x(make(DType::f32, {kSize, 100})),
        y(make(DType::f32, {kSize, 100})),
        input(make(DType::bf16, {kTokens, kInputs})),
        w(make(DType::bf16, {kOutputs, kInputs})),
        inner(make(DType::bf16, {kTokens, kOutputs})),
        key(make(DType::i32, {RandomKey::kWords})) {
    fill(q, x, 1);
    fill_normal(q, input, 1, {.seed = 5});
    fill_normal(q, w, 1, {.seed = 6});
  }
  // As a graph, which reads the key where it lies, or op by op with the key as an argument.
  std::vector<Values> results(uint64_t call, bool graph) const {
    const uint64_t words[] = {1, call};
    q.upload(key, words);
    const auto compute = [&](const RandomKey& k) {
      dropout(q, y, x, {0.5f, k});
      dropped_linear(q, inner, input, w, 1, {0.5f, k});
    };
    const auto phase = q.arena().phase("work");
    if (graph)
      q.graph({kSize}, [&] { compute({*key, 9}); });
    else
      compute(RngKey{.seed = 1, .step = call, .site = 9});
    return {values_of(q, y), values_of(q, inner)};
  }
};

TEST_P(Graph, EveryCallDropsWhatItsKeySaysThen) {
  Arena notes;
  Queue imagined(Device::sim, notes, {.device = GetParam()});
  Drops(imagined).results(0, true);
  Arena arena(notes.plan(), GetParam());
  Queue q(GetParam(), arena);
  const Drops drops(q);
  std::vector<Values> last;
  for (uint64_t call = 0; call < 5; ++call) {
    const auto found = drops.results(call, true);
    EXPECT_EQ(found, drops.results(call, false)) << call;
    EXPECT_NE(found, last);
    last = found;
  }
}

TEST_P(Graph, AnErrorInsideEndsTheRecording) {
  const Buffer x = random(DType::f32, {8}), y = empty(DType::f32, {8});
  for (int call = 0; call < 3; ++call)
    EXPECT_THROW(q_.graph({1},
                          [&] {
                            copy(q_, y, x);
                            fail(Fault::usage, "stop");
                          }),
                 Error);
  q_.graph({2}, [&] { copy(q_, y, x); });
  EXPECT_EQ(values(y), values(x));
}

TEST_P(Graph, MoreKeysThanGraphsAreKept) {
  const Buffer x = empty(DType::f32, {8}), y = empty(DType::f32, {8});
  for (int round = 0; round < 4; ++round)
    for (int64_t key = 0; key < 20; ++key) {
      const Values expected(8, double(20 * round + key));
      copy(q_, x, of(DType::f32, {8}, expected));
      q_.graph({key}, [&] { copy(q_, y, x); });
      EXPECT_EQ(values(y), expected) << round << ' ' << key;
    }
}

// One product of f32.
struct Multiplies : Planned {
  static constexpr int64_t kSide = 64;
  Buffer x, w, y;

  explicit Multiplies(Queue& queue)
      : Planned{queue},
        x(make(DType::f32, {kSide, kSide})),
        w(make(DType::f32, {kSide, kSide})),
        y(make(DType::f32, {kSide, kSide})) {
    fill_normal(q, x, 1, {.seed = 5});
    fill_normal(q, w, 1, {.seed = 6});
  }
  Values result(bool tf32, bool graph) const {
    q.allow_tf32(tf32);
    const auto phase = q.arena().phase("work");
    if (graph)
      q.graph({kSide}, [&] { linear(q, y, x, w, {}); });
    else
      linear(q, y, x, w, {});
    return values_of(q, y);
  }
};

// The same work with products of f32 and of TF32: the graph of one is not launched for the other.
TEST_P(Graph, OfOtherProductsIsAnother) {
  Arena notes;
  Queue imagined(Device::sim, notes, {.device = GetParam()});
  Multiplies(imagined).result(false, true);
  Arena arena(notes.plan(), GetParam());
  Queue q(GetParam(), arena);
  const Multiplies multiplies(q);
  const Values exact = multiplies.result(false, false), rounded = multiplies.result(true, false);
  EXPECT_EQ(exact != rounded, GetParam() == Device::cuda && computes_bf16(Device::cuda));
  for (int call = 0; call < 4; ++call) {
    EXPECT_EQ(multiplies.result(false, true), exact) << call;
    EXPECT_EQ(multiplies.result(true, true), rounded) << call;
  }
}

// New graphs take the room of those that have not been used for long, and few of many nodes that of
// many.
TEST_P(Graph, ThoseThatAreNotUsedGiveWay) {
  const Buffer x = empty(DType::f32, {8}), y = empty(DType::f32, {8});
  double number = 0;
  const auto expect_right = [&](int64_t key, int copies) {
    const Values expected(8, ++number);
    copy(q_, x, of(DType::f32, {8}, expected));
    q_.graph({key}, [&] {
      for (int i = 0; i < copies; ++i) copy(q_, y, x);
    });
    EXPECT_EQ(values(y), expected) << key;
  };
  const auto use = [&](int64_t first, int64_t keys, int rounds, int copies) {
    for (int round = 0; round < rounds; ++round)
      for (int64_t key = first; key < first + keys; ++key) expect_right(key, copies);
  };
  use(0, 16, 2, 1);
  use(0, 1, 70, 1);
  use(20, 4, 3, 1);
  use(30, 1, 70, 9000);
  use(40, 4, 3, 9000);
  use(0, 16, 2, 1);
}

}  // namespace
}  // namespace capstan::test
