#include <algorithm>
#include <cmath>
#include <map>

#include "model/small_models.h"
#include "ops/reference.h"
#include "optim/optimizer.h"

namespace capstan::test {
namespace {

constexpr OptimizerOptions kFewBits{.kind = OptimizerOptions::Kind::adamw8bit};

// q is quantized and k and v, of half its size, are not; of gate and up both are.
ModelConfig config() {
  ModelConfig c = aligned_config();
  c.vocab = 256;
  c.tied = true;
  return c;
}

struct Model {
  explicit Model(Precision precision, const OptimizerOptions& options = kFewBits)
      : arena(Arena::Heap{}),
        q(Device::cpu, arena),
        params(arena, make_spec(config()), precision, Gradients::kept),
        optimizer(q, params, options),
        scale(buffer_of(q, DType::f32, {1}, {1})) {
    params.initialize(q, 3);
    for (int i = 0; i < params.count(); ++i) {
      const Tensor g = params.grad(i);
      const Values v = normal_values(g.numel(), static_cast<uint64_t>(i));
      q.upload(g, buffer_of(q, g.dtype(), g.shape(), v)->raw());
    }
    for (const SavedTensor& s : optimizer.state()) state[s.name] = s.whole();
  }
  void step(double lr = 1e-2) { optimizer.update(q, lr, scale); }

  Arena arena;
  Queue q;
  Parameters params;
  Optimizer optimizer;
  Buffer scale;
  std::map<std::string, Tensor> state;
};

TEST(AdamW8bit, SmallTensorsAndTheEmbeddingKeepF32MomentsInEveryPrecision) {
  for (const auto p : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed}) {
    const Model m(p);
    int few = 0, full = 0;
    for (const Param& param : m.params.spec().params)
      for (const Part& part : param.parts)
        for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
          const Tensor t = m.state.at(part.name + moment);
          const bool quantized = t.numel() >= 4096 && part.name != "model.embed_tokens.weight";
          EXPECT_EQ(t.dtype(), quantized ? DType::u8 : DType::f32) << part.name;
          EXPECT_EQ(t.dim(0), part.rows);
          ASSERT_EQ(m.state.contains(part.name + moment + ".absmax"), quantized) << part.name;
          if (quantized) {
            EXPECT_EQ(m.state.at(part.name + moment + ".absmax").shape(),
                      Shape{(t.numel() + 255) / 256});
          }
          ++(quantized ? few : full);
        }
    EXPECT_EQ(few, 2 * 2 * 5);         // q, o, gate, up, down
    EXPECT_EQ(full, 2 * (2 * 4 + 2));  // k, v and two norms; the embedding and a norm
  }
}

// To the byte: every request here is a multiple of the alignment, or rounded up to one.
TEST(AdamW8bit, TakesTwoBytesAndTwoScalesForEach256Values) {
  const auto rounded = [](int64_t n) {
    return (n + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
  };
  Arena arena;
  Queue q(Device::sim, arena);
  Parameters params(arena, make_spec(config()), Precision::bf16_true, Gradients::none);
  const Optimizer optimizer(q, params, kFewBits);
  int64_t bytes = 0;
  for (const Param& param : params.spec().params)
    for (const Part& part : param.parts) {
      const int64_t n = param.shape.numel() / param.shape[0] * part.rows;
      if (n >= 4096 && part.name != "model.embed_tokens.weight")
        bytes += 2 * (rounded(n) + rounded(n / 256 * 4));
      else
        bytes += 2 * rounded(4 * n);
    }
  EXPECT_EQ(at(arena.plan().highest, Category::optimizer), bytes);
}

// A part's moments are what they would be if its tensor were alone.
TEST(AdamW8bit, EachPartIsQuantizedOnItsOwn) {
  for (const auto p : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed}) {
    Model whole(p), alone(p);
    for (int step = 0; step < 3; ++step) whole.step();
    const Parameters& params = alone.params;
    const int i = params.spec().blocks[1].gate_up;
    const Part& up = params.spec().params[idx(i)].parts[1];
    const auto rows = [&](const Tensor& t) { return t ? t.rows(up.first_row, up.rows) : Tensor(); };
    const auto mine = [&](const char* name) { return alone.state.at(up.name + name); };
    for (int64_t step = 1; step <= 3; ++step)
      adamw8bit(alone.q,
                {rows(params.weight(i)), rows(params.master(i)), rows(params.grad(i)),
                 mine(".exp_avg"), mine(".exp_avg_sq"), alone.scale},
                {mine(".exp_avg.absmax"), mine(".exp_avg_sq.absmax")}, {.lr = 1e-2f, .step = step});
    for (const char* name : {".exp_avg", ".exp_avg_sq", ".exp_avg.absmax", ".exp_avg_sq.absmax"})
      EXPECT_EQ(values_of(whole.q, whole.state.at(up.name + name)), values_of(alone.q, mine(name)))
          << name << name_of(p);
    EXPECT_EQ(values_of(whole.q, rows(whole.params.weight(i))),
              values_of(alone.q, rows(params.weight(i))));
  }
}

TEST(AdamW8bit, GoesOnBitForBitAfterItIsRestored) {
  for (const auto p : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed}) {
    Model through(p), resumed(p);
    for (int step = 0; step < 3; ++step) through.step();
    for (int i = 0; i < through.params.count(); ++i)
      resumed.q.upload(resumed.params.stored(i), through.params.stored(i).raw());
    for (const auto& [name, tensor] : through.state)
      resumed.q.upload(resumed.state.at(name), tensor.raw());
    resumed.params.refresh_weights(resumed.q);
    resumed.optimizer.restore(3);
    for (int step = 0; step < 2; ++step) {
      through.step();
      resumed.step();
    }
    for (int i = 0; i < through.params.count(); ++i)
      EXPECT_EQ(values_of(through.q, through.params.stored(i)),
                values_of(resumed.q, resumed.params.stored(i)));
  }
}

// Σ (w - target)^2 / 2 of one matrix, with noise on its gradient: the loss after many small steps.
double fitted(const OptimizerOptions& options) {
  Model m(Precision::f32_true, options);
  const int i = m.params.spec().blocks[0].down;
  const Tensor w = m.params.weight(i), g = m.params.grad(i);
  const Values target = normal_values(w.numel(), 77, 0.1);
  for (uint64_t step = 0; step < 200; ++step) {
    const Values noise = normal_values(w.numel(), 1000 + step, 0.05);
    for (size_t k = 0; k < target.size(); ++k)
      g.as<float>()[k] = static_cast<float>(double{w.as<float>()[k]} - target[k] + noise[k]);
    m.step(4e-3 * (1 - static_cast<double>(step) / 200));
  }
  double loss = 0;
  for (size_t k = 0; k < target.size(); ++k)
    loss += std::pow(double{w.as<float>()[k]} - target[k], 2) / 2;
  return loss;
}

TEST(AdamW8bit, FitsNearlyAsWellAsAdamW) {
  const double start = 0.5 * dot(normal_values(6144, 77, 0.1), normal_values(6144, 77, 0.1));
  const double full = fitted({.weight_decay = 0}),
               few = fitted({.kind = kFewBits.kind, .weight_decay = 0});
  EXPECT_LT(full, 0.05 * start) << "AdamW itself must get there";
  EXPECT_LT(few, 1.25 * full);
}

}  // namespace
}  // namespace capstan::test
