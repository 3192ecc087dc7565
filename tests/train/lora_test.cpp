// What adapters promise for a whole model: see model/adapter.h.

#include "engine.h"
#include "model/adapter.h"
#include "model/decoder.h"
#include "model/merge_adapters.h"
#include "optim/optimizer.h"

namespace capstan::test {
namespace {

// One map at a time, pairs, and all. On a GPU, where each buffer of these tests is an allocation
// that is waited for, some of them.
std::vector<LoraOptions> choices(double dropout, Device device) {
  std::vector<LoraOptions> result;
  for (int bits = 1; bits < 64; bits += bits < 32 ? 3 : 7)
    result.push_back({.r = 3,
                      .alpha = 6,
                      .dropout = dropout,
                      .query = (bits & 1) != 0,
                      .key = (bits & 2) != 0,
                      .value = (bits & 4) != 0,
                      .projection = (bits & 8) != 0,
                      .mlp = (bits & 16) != 0,
                      .head = (bits & 32) != 0});
  for (const int bit : {1, 2, 8, 16, 32}) {
    LoraOptions o{.r = 2, .alpha = 3, .dropout = dropout, .query = bit == 1, .value = false};
    o.key = bit == 2;
    o.projection = bit == 8;
    o.mlp = bit == 16;
    o.head = bit == 32;
    result.push_back(o);
  }
  if (device != Device::cuda) return result;
  std::vector<LoraOptions> some;
  for (size_t i = 0; i < result.size(); i += 4) some.push_back(result[i]);
  some.push_back(every_map(dropout));
  return some;
}

CAPSTAN_ON_EVERY_DEVICE(Lora);

void initialize(Engine& e) {
  e.params.initialize(e.q, 7);
  draw_zero_factors(e.q, e.params);
}

struct Pass {
  double loss = 0;
  std::map<std::string, Values> gradients;
  bool operator==(const Pass&) const = default;
};

Pass train(Engine& e, const std::optional<StepKey>& key) {
  PlainBatch b = some_batch(e.model.config().vocab);
  e.clear_loss();
  e.params.begin_step(e.q);
  train_on(e.model, e.q, b.on(e.q, 0), 1, e.loss, key);
  return {e.loss_sum(), e.by_name(true)};
}

TEST_P(Lora, RecomputationSeesTheSameMasksInEveryPrecision) {
  const StepKey key{.seed = 1, .step = 2};
  std::vector<LoraOptions> all = choices(0.3, GetParam());
  all.push_back(every_map(0.3));
  all.back().r = 16;
  for (const auto precision : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed})
    for (const LoraOptions& lora : all) {
      ModelConfig config = grouped_config();
      // With these a GPU drops on the way through tensor cores.
      if (lora.r == 16) config.hidden = config.intermediate = 128, config.head_dim = 32;
      std::optional<Pass> expected;
      for (const Recomputation& policy : kPolicies) {
        Engine e(GetParam(), config, precision, policy, lora);
        initialize(e);
        const Pass found = train(e, key);
        if (!expected) expected = found;
        EXPECT_EQ(found, *expected) << name_of(precision) << " " << name_of(policy);
      }
    }
}

TEST_P(Lora, MasksDependOnSeedAndStep) {
  Engine e(GetParam(), grouped_config(), Precision::f32_true, Recompute::none, every_map(0.2));
  initialize(e);
  const Pass first = train(e, StepKey{.seed = 1, .step = 2});
  EXPECT_EQ(train(e, StepKey{.seed = 1, .step = 2}), first);
  for (const StepKey& other : {StepKey{9, 2}, StepKey{1, 9}})
    EXPECT_NE(train(e, other).loss, first.loss);
}

TEST_P(Lora, MasksAreTheSameFromAKeyOnTheDevice) {
  const StepKey known{.seed = 1, .step = 2};
  const uint64_t words[] = {known.seed, known.step};
  for (const auto policy : {Recompute::none, Recompute::block}) {
    Engine e(GetParam(), grouped_config(), Precision::bf16_mixed, policy, every_map(0.2));
    initialize(e);
    const Buffer key = e.q.arena().make(Category::data, DType::i32, {RandomKey::kWords}, "key");
    e.q.upload(key, words);
    EXPECT_EQ(train(e, StepKey{.at = *key}), train(e, known));
  }
}

// Over many masks the adapters' part keeps its mean; without a key of their own, evaluation and
// decoding drop nothing.
TEST_P(Lora, EvaluationDropsNothing) {
  const ModelConfig config = grouped_config();
  Engine with(GetParam(), config, Precision::f32_true, Recompute::none, every_map(0.5));
  Engine without(GetParam(), config, Precision::f32_true, Recompute::none, every_map(0));
  PlainBatch b = some_batch(config.vocab);
  for (Engine* e : {&with, &without}) {
    initialize(*e);
    e->model.evaluate(e->q, b.on(e->q, 0), e->loss);
  }
  EXPECT_EQ(with.loss_sum(), without.loss_sum());
  EXPECT_NE(train(with, StepKey{}).loss, without.loss_sum());
  EXPECT_EQ(train(without, {}).loss, without.loss_sum());
  EXPECT_THROW(train(with, {}), Error) << "a forgotten key";
}

// With any set of adapters, all gradients together against the loss along them: a gradient that
// stops too early, or a mask that differs between the passes, would show.
TEST_P(Lora, GradientsMatchFiniteDifferences) {
  const StepKey key{.seed = 4};
  for (const ModelConfig& config : [] {
         ModelConfig qwen = grouped_config();
         qwen.architecture = "Qwen3ForCausalLM";
         qwen.qk_norm = qwen.tied = true;
         return std::vector<ModelConfig>{grouped_config(), qwen};
       }())
    for (const LoraOptions& lora : choices(0.3, GetParam())) {
      Engine e(GetParam(), config, Precision::f32_true, Recompute::selective, lora);
      initialize(e);
      train(e, key);
      double square = 0;
      std::vector<std::vector<float>> gradients(static_cast<size_t>(e.params.count()));
      for (int i = 0; i < e.params.count(); ++i)
        if (const Tensor g = e.params.grad(i)) {
          const Values v = values_of(e.q, g);
          gradients[static_cast<size_t>(i)].assign(v.begin(), v.end());
          for (const double x : v) square += x * x;
        }
      // The loss is f64 sums of f32 results: noise of some 1e-5 against 2 h ‖g‖².
      const double h = 1e-3 / std::sqrt(square);
      const auto loss_at = [&](double step) {
        for (int i = 0; i < e.params.count(); ++i) {
          const auto& g = gradients[static_cast<size_t>(i)];
          if (g.empty()) continue;
          const Values v = values_of(e.q, e.params.weight(i));
          std::vector<float> moved(v.begin(), v.end());
          for (size_t k = 0; k < g.size(); ++k) moved[k] += static_cast<float>(step * g[k]);
          put(e.q, e.params.weight(i), moved);
        }
        return train(e, key).loss;
      };
      const double up = loss_at(h), down = loss_at(-2 * h);
      EXPECT_NEAR((up - down) / (2 * h) / square, 1, 2e-3 + 3e-5 / (2 * h * square));
    }
}

// Folding in changes the weights by s B A alone, rounded once.
TEST_P(Lora, MergingRoundsOnce) {
  for (const auto precision : {Precision::f32_true, Precision::bf16_mixed}) {
    Engine e(GetParam(), grouped_config(), precision, Recompute::none, every_map(0));
    initialize(e);
    const AdapterIndex at = e.params.spec().blocks[1].qkv_lora;
    const int qkv = e.params.spec().blocks[1].qkv;
    const Values before = values_of(e.q, e.params.weight(qkv));
    const Values a = values_of(e.q, e.params.stored(at.a)),
                 b = values_of(e.q, e.params.stored(at.b));
    merge_adapters(e.q, e.params);
    const Values after = values_of(e.q, e.params.weight(qkv));
    const int64_t inputs = 24, r = 3, columns = 24;  // queries are the first rows
    for (int64_t o = 0; o < columns; ++o)
      for (int64_t i = 0; i < inputs; ++i) {
        double sum = before[static_cast<size_t>(o * inputs + i)];
        for (int64_t k = 0; k < r; ++k)
          sum += 2 * b[static_cast<size_t>(o * r + k)] * a[static_cast<size_t>(k * inputs + i)];
        const double found = after[static_cast<size_t>(o * inputs + i)];
        const double half_ulp = precision == Precision::f32_true ? 0x1p-23 : 0x1.02p-8;
        EXPECT_NEAR(found, sum, half_ulp * std::max(0.5, std::abs(sum)));
      }
    for (const double x : values_of(e.q, e.params.stored(at.b))) EXPECT_EQ(x, 0);
  }
}

struct Planned {
  MemoryPlan plan;
  ByCategory highest{};
  int64_t allocated = 0;
};

// A step, an evaluation and decoding, as a trainer has them: first recorded, then run.
Planned plan_and_run(Device target, const ModelConfig& config, const LoraOptions& lora,
                     Precision precision, const Recomputation& policy, Gradients gradients) {
  const auto program = [&](Arena& arena, Device device) {
    Queue q(device, arena, {.device = target});
    PlainBatch host = some_batch(config.vocab);
    const Batch batch = host.on(q, 0);
    const bool real = device != Device::sim;
    Parameters params(arena, make_spec(config, Decay::all, lora), precision, gradients);
    Transformer model(q, params, policy, 64);
    Optimizer optimizer(q, params, {});
    GradientClip clip(q, 1, params);
    Decoder decoder(q, model, 8, 8);
    const Buffer loss = arena.make(Category::data, DType::f64, {1}, "loss");
    if (real) params.initialize(q, 7);
    for (int step = 0; step < (real ? 2 : 1); ++step) {
      params.begin_step(q);
      {
        const auto phase = arena.phase("step");
        train_on(model, q, batch, 1, loss, StepKey{.step = static_cast<uint64_t>(step)});
        clip.measure(q, params);
        optimizer.update(q, 1e-3, clip.scale());
        params.end_step();
      }
      const auto phase = arena.phase("evaluate");
      model.evaluate(q, batch, loss);
    }
    decoder.rehearse(q);
  };
  Planned result;
  Arena recording;
  program(recording, Device::sim);
  result.plan = recording.plan();
  Arena arena(result.plan, target);
  program(arena, target);
  result.highest = arena.highest();
  result.allocated = arena.allocated_bytes();
  return result;
}

TEST_P(Lora, ThePlanIsWhatIsAllocated) {
  for (const LoraOptions& lora : choices(0.1, GetParam()))
    for (const auto precision : {Precision::f32_true, Precision::bf16_mixed})
      for (const Recomputation& policy : kPolicies)
        for (const auto gradients : {Gradients::kept, Gradients::in_step}) {
          const Planned p =
              plan_and_run(GetParam(), grouped_config(), lora, precision, policy, gradients);
          EXPECT_EQ(p.allocated, p.plan.total_bytes);
          EXPECT_EQ(p.highest, p.plan.highest);
        }
}

// What a run needs by category, for a shape large enough that rounding up to 256 bytes is nothing.
TEST(LoraCost, FrozenWeightsCostTwoBytesAndNothingElse) {
  ModelConfig config = grouped_config();
  config.hidden = 512;
  config.intermediate = 1376;
  config.heads = config.kv_heads = 8;
  config.head_dim = 64;
  config.vocab = 1000;
  const LoraOptions lora{.r = 8};
  const ModelSpec spec = make_spec(config, Decay::all, lora);
  const auto trainable = static_cast<double>(spec.trainable_count());
  const auto frozen = static_cast<double>(spec.parameter_count()) - trainable;
  Arena arena;
  Queue q(Device::sim, arena);
  Parameters params(arena, spec, Precision::bf16_mixed, Gradients::kept);
  Optimizer optimizer(q, params, {});
  const auto bytes = [&](Category c) { return static_cast<double>(at(arena.highest(), c)); };
  EXPECT_NEAR(bytes(Category::weights), 2 * frozen + 6 * trainable, 2e4);
  EXPECT_NEAR(bytes(Category::gradients), 4 * trainable, 2e4);
  EXPECT_NEAR(bytes(Category::optimizer), 8 * trainable, 2e4);
}

// Nothing is kept, nor computed backwards, below the first adapter.
TEST(LoraCost, TheHeadAloneNeedsNoBackwardPassOfTheBlocks) {
  const LoraOptions head{.dropout = 0, .query = false, .value = false, .head = true};
  const auto cost = [&](const LoraOptions& lora) {
    Arena arena;
    Queue q(Device::sim, arena);
    Parameters params(arena, make_spec(grouped_config(), Decay::all, lora), Precision::f32_true,
                      Gradients::kept);
    Transformer model(q, params, Recompute::none, 64);
    const Buffer loss = arena.make(Category::data, DType::f64, {1}, "loss");
    PlainBatch b = some_batch(67);
    {
      const auto phase = arena.phase("step");
      train_on(model, q, b.view(0), 1, loss, StepKey{});
    }
    int64_t attention_backward_calls = 0, linear_backward_calls = 0;
    for (const OpTotal& t : q.totals()) {
      if (t.op == nullptr) continue;
      if (std::string_view(t.op) == "attention_backward") attention_backward_calls = t.calls;
      if (std::string_view(t.op) == "linear_backward_data") linear_backward_calls = t.calls;
    }
    return std::array<int64_t, 3>{attention_backward_calls, linear_backward_calls,
                                  at(arena.plan().highest, Category::activations)};
  };
  const auto head_cost = cost(head);
  EXPECT_EQ(head_cost[0], 0);
  EXPECT_EQ(head_cost[1], 0);
  LoraOptions mlp{.dropout = 0, .query = false, .value = false, .mlp = true};
  const auto mlp_cost = cost(mlp);
  EXPECT_EQ(mlp_cost[0], 2) << "of three blocks: the lowest stops above its attention";
  EXPECT_LT(head_cost[2], mlp_cost[2]);
  const auto every = cost(every_map(0));
  EXPECT_EQ(every[0], 3);
  LoraOptions qv{.dropout = 0};
  EXPECT_LT(cost(qv)[2], every[2]) << "inputs of maps that are not adapted are not kept";
}

}  // namespace
}  // namespace capstan::test
