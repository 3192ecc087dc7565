// The contracts of docs/architecture.md that hold for a whole model and its trainer.

#include <chrono>
#include <cstring>
#include <filesystem>

#include "data/sampler.h"
#include "data/step_batches.h"
#include "engine.h"
#include "train/trainer.h"

namespace capstan::test {
namespace {

ModelConfig all_features() {
  ModelConfig c = grouped_config();
  c.architecture = "Qwen3ForCausalLM";
  c.qk_norm = c.tied = c.qkv_bias = c.o_bias = true;
  return c;
}

// Samples of 2 to 20 tokens, some with masked prompts.
Dataset ragged(int64_t samples, int64_t vocab) {
  Dataset data;
  const Rng rng({.seed = 5});
  uint64_t draw = 0;
  for (int64_t s = 0; s < samples; ++s) {
    std::vector<int32_t> tokens(2 + rng.below(draw++, 19));
    for (auto& t : tokens)
      t = static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(vocab)));
    data.add(tokens, static_cast<int64_t>(rng.below(draw++, tokens.size())));
  }
  return data;
}

CAPSTAN_ON_EVERY_DEVICE(Equivalence);
CAPSTAN_ON_EVERY_DEVICE(Determinism);
CAPSTAN_ON_EVERY_DEVICE(PlanOn);
CAPSTAN_ON_EVERY_DEVICE(TrainerOn);

struct LossAndGradients {
  double loss = 0;
  std::map<std::string, Values> gradients;
};

LossAndGradients compute(Device device, const ModelConfig& config, const Dataset& data,
                         int64_t micro_batch, bool packed, const Recomputation& policy,
                         Precision precision) {
  Engine e(device, config, precision, policy);
  e.params.initialize(e.q, 7);
  MicroBatches micro(data, micro_batch,
                     {.max_seq_length = 32, .vocab = config.vocab, .packed = packed});
  std::vector<int64_t> ids(static_cast<size_t>(data.size()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  micro.start(ids);
  const float scale = 1.0f / static_cast<float>(micro.targets());
  while (const HostBatch* host = micro.next()) {
    PlainBatch b(host->ids, host->labels, host->starts);
    EXPECT_EQ(b.positions, host->positions);
    e.model.train(e.q, b.on(e.q, config.sliding_window), scale, e.loss);
  }
  return {e.loss_sum() * scale, e.by_name(true)};
}

TEST_P(Equivalence, MicroBatchesPaddingAndRecomputationChangeNothing) {
  for (const ModelConfig& config : {grouped_config(), all_features()}) {
    const Dataset data = ragged(8, config.vocab);
    const LossAndGradients expected =
        compute(GetParam(), config, data, 8, true, Recompute::none, Precision::f32_true);
    for (const int64_t micro : {8, 4, 1})
      for (const bool packed : {true, false})
        for (const auto& policy : kPolicies) {
          SCOPED_TRACE(fmt::format("micro-batches of {}, {}, {}", micro,
                                   packed ? "packed" : "padded", name_of(policy)));
          const auto found =
              compute(GetParam(), config, data, micro, packed, policy, Precision::f32_true);
          EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
          for (const auto& [name, v] : expected.gradients)
            EXPECT_LT(error(found.gradients.at(name), v), 1e-5) << name;
        }
  }
}

// In bf16 the same values are recomputed bit for bit.
TEST_P(Equivalence, RecomputationIsBitwiseInEveryPrecision) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(5, config.vocab);
  for (const auto precision : kPrecisions) {
    const auto expected = compute(GetParam(), config, data, 5, true, Recompute::none, precision);
    for (const auto& policy : kPolicies) {
      const auto found = compute(GetParam(), config, data, 5, true, policy, precision);
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.gradients, expected.gradients) << name_of(precision) << name_of(policy);
    }
  }
}

TrainOptions options_for(Device device, const ModelConfig& config, const Dataset& data,
                         Precision precision, const Recomputation& policy, int64_t micro_batch,
                         bool single) {
  TrainOptions o;
  o.device = device;
  o.model = config;
  o.precision = precision;
  o.recompute = policy;
  o.limits = limits_of(data, micro_batch, {.max_seq_length = 32, .vocab = config.vocab});
  o.single_micro_batch = single;
  o.schedule = {.lr = 1e-2, .total_steps = 10};
  o.max_norm = 1;
  o.sample_positions = 40;
  return o;
}

// A run without host memory beside a GPU's: every batch is copied when its turn comes.
RunPlan plan_without_host(const TrainOptions& o) {
  Arena device;
  Queue q(Device::sim, device, {.device = o.device});
  Trainer(q, o).rehearse();
  return {device.plan(), Arena().plan()};
}

// The memory of a run, and its queue.
struct Planned {
  explicit Planned(const TrainOptions& o, bool with_host = true)
      : plan(with_host ? Trainer::plan(o) : plan_without_host(o)),
        arena(plan.device, o.device),
        host(plan.host, Arena::Pinned{}),
        q(o.device, arena, with_host ? host : arena) {}
  RunPlan plan;
  Arena arena, host;
  Queue q;
};

struct RunResult {
  std::vector<double> losses;
  std::vector<std::vector<std::byte>> weights;
  RunPlan plan;
  ByCategory highest{}, highest_on_host{};
  int64_t allocated = 0, pinned = 0;
  bool operator==(const RunResult& other) const {
    return losses == other.losses && weights == other.weights;
  }
  void expect_as_planned() const {
    EXPECT_EQ(allocated, plan.device.total_bytes);
    EXPECT_EQ(highest, plan.device.highest);
    EXPECT_EQ(pinned, plan.host.total_bytes);
    EXPECT_EQ(highest_on_host, plan.host.highest);
  }
};

struct Way {
  bool op_by_op = false;
  bool ahead = true;        // batches are copied ahead, where the device can
  int evaluate_every = 99;  // steps
};

// Plans, allocates once, trains `steps` steps, evaluates, generates.
RunResult run(const TrainOptions& o, const Dataset& data, int64_t global, int64_t micro_batch,
              int steps, const Way& way = {}) {
  RunResult result;
  Planned memory(o, way.ahead);
  Queue& q = memory.q;
  q.time_each_op(way.op_by_op);
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  const BatchOptions options{.max_seq_length = 32, .vocab = o.model.vocab};
  Sampler sampler(data.size(), global, 11);
  MicroBatches micro(data, micro_batch, options);
  StepBatches batches(data, global, micro_batch, 11, options);
  for (int step = 0; step < steps; ++step) {
    micro.start(sampler.ids(step));
    result.losses.push_back(way.ahead ? trainer.step(batches.of(step), step, &batches).loss
                                      : trainer.step(micro, step).loss);
    micro.start(sampler.ids(0));
    if ((step + 1) % way.evaluate_every == 0) trainer.evaluate(micro);
  }
  micro.start(sampler.ids(0));
  result.losses.push_back(trainer.evaluate(micro).mean());
  const std::vector<int32_t> prompt = {1, 2, 3};
  GenerateOptions generation;
  generation.max_new_tokens = 20;
  for (const int32_t t : generate(q, *trainer.decoder(), prompt, generation))
    result.losses.push_back(t);
  for (int i = 0; i < trainer.params().count(); ++i) {
    const Tensor w = trainer.params().stored(i);
    q.download(result.weights.emplace_back(static_cast<size_t>(w.nbytes())).data(), w);
  }
  result.plan = memory.plan;
  result.highest = memory.arena.highest();
  result.allocated = memory.arena.allocated_bytes();
  result.highest_on_host = memory.host.highest();
  result.pinned = memory.host.allocated_bytes();
  return result;
}

// Steps of one, of a few and of many micro-batches, whose sizes differ; with and without
// evaluations between, for which what was copied ahead has to give way.
TEST_P(Determinism, BatchesThatAreCopiedAheadChangeNothing) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(16, config.vocab);
  for (const int64_t micro : {8, 3, 1}) {
    const auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none,
                               micro, micro == 8);
    const RunResult expected = run(o, data, 8, micro, 7, {.ahead = false});
    EXPECT_EQ(run(o, data, 8, micro, 7), expected) << micro;
    EXPECT_EQ(run(o, data, 8, micro, 7, {.op_by_op = true}), expected) << micro;
    EXPECT_EQ(run(o, data, 8, micro, 7, {.evaluate_every = 2}), expected) << micro;
  }
}

// Where a device replays the work of a micro-batch of a size that it knows, that changes no bit;
// the documents of a batch stand in another order each time.
TEST_P(Determinism, ReplayedStepsEqualStepsOpByOp) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(4, config.vocab);
  for (const bool single : {true, false})
    for (const auto precision : {Precision::f32_true, Precision::bf16_true}) {
      const auto o =
          options_for(GetParam(), config, data, precision, Recompute::none, single ? 4 : 1, single);
      const int64_t micro = single ? 4 : 1;
      EXPECT_EQ(run(o, data, 4, micro, 8), run(o, data, 4, micro, 8, {.op_by_op = true}))
          << name_of(precision);
    }
}

TEST_P(Determinism, TwoRunsAreBitwiseEqual) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(12, config.vocab);
  for (const auto precision : kPrecisions) {
    const auto o = options_for(GetParam(), config, data, precision, Recompute::selective, 2, false);
    EXPECT_EQ(run(o, data, 6, 2, 4), run(o, data, 6, 2, 4)) << name_of(precision);
  }
}

TEST_P(Determinism, GradientsThatLiveInTheStepChangeNothing) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(12, config.vocab);
  const auto kept =
      options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 6, false);
  auto in_step = kept;
  in_step.single_micro_batch = true;
  EXPECT_EQ(run(kept, data, 6, 6, 4), run(in_step, data, 6, 6, 4));
  EXPECT_LT(Trainer::plan(in_step).device.total_bytes, Trainer::plan(kept).device.total_bytes);
}

// Every kind of model that there are golden values for, and ours with several at once.
std::vector<ModelConfig> every_config() {
  std::vector<ModelConfig> configs = {grouped_config(), all_features()};
  const std::filesystem::path golden = std::filesystem::path(CAPSTAN_SOURCE_DIR) / "tests/golden";
  for (const auto& entry : std::filesystem::directory_iterator(golden))
    if (std::filesystem::exists(entry.path() / "config.json"))
      configs.push_back(read_config(entry.path()));
  return configs;
}

TEST_P(PlanOn, IsWhatIsAllocatedForEveryConfigPrecisionAndPolicy) {
  EXPECT_GE(every_config().size(), 8U);
  for (const ModelConfig& config : every_config()) {
    const Dataset data = ragged(6, config.vocab);
    for (const auto precision : kPrecisions)
      for (const auto& policy : kPolicies)
        for (const bool single : {true, false}) {
          SCOPED_TRACE(fmt::format("{} {} {}", name_of(precision), name_of(policy), single));
          const int64_t micro = single ? 6 : 2;
          // Every request of the run is matched with the plan's as it is made: one that is larger,
          // of another category, or in another place throws.
          const auto o = options_for(GetParam(), config, data, precision, policy, micro, single);
          const RunResult r = run(o, data, 6, micro, 2);
          r.expect_as_planned();
        }
  }
}

// Some tensors with moments in 8 bits, some without; and a copy of all to save from.
TEST_P(PlanOn, IsWhatIsAllocatedWithMomentsIn8Bits) {
  ModelConfig config = all_features();
  config.hidden = 72;
  config.intermediate = 70;
  config.head_dim = 18;
  const Dataset data = ragged(6, config.vocab);
  for (const auto precision : kPrecisions)
    for (const bool single : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(precision), single));
      const int64_t micro = single ? 6 : 2;
      auto o =
          options_for(GetParam(), config, data, precision, Recompute::selective, micro, single);
      const int64_t usual = at(Trainer::plan(o).device.highest, Category::optimizer);
      o.optimizer.kind = OptimizerOptions::Kind::adamw8bit;
      o.staging = true;
      const RunResult r = run(o, data, 6, micro, 2);
      r.expect_as_planned();
      EXPECT_LT(at(r.plan.device.highest, Category::optimizer), usual);
      EXPECT_EQ(run(o, data, 6, micro, 2), r);
    }
}

TEST(Plan, RecomputationAndBf16NeedLess) {
  // Large enough that the panels of bf16's products do not outweigh what bf16 saves.
  ModelConfig config = grouped_config();
  config.layers = 12;
  config.hidden = 240;
  config.intermediate = 512;
  const Dataset data = ragged(20, config.vocab);
  const auto total = [&](Precision p, const Recomputation& r) {
    return Trainer::plan(options_for(Device::cpu, config, data, p, r, 20, false))
        .device.total_bytes;
  };
  const auto f32 = Precision::f32_true;
  const int layers = static_cast<int>(config.layers);
  // To recompute the last block, too, makes no difference: it would be made again at once.
  for (int rung = 0; rung < 2 * layers - 1; ++rung)
    EXPECT_GT(total(f32, Recomputation::at_rung(rung, layers)),
              total(f32, Recomputation::at_rung(rung + 1, layers)))
        << rung;
  EXPECT_EQ(total(f32, {Recompute::block, layers - 1}), total(f32, Recompute::block));
  EXPECT_GT(total(f32, Recompute::none), total(Precision::bf16_true, Recompute::none));
}

TEST(Plan, Llama70BOnOneImaginaryDeviceInUnderASecond) {
  TrainOptions o;
  o.model.vocab = 32000;
  o.model.hidden = 8192;
  o.model.intermediate = 28672;
  o.model.layers = 80;
  o.model.heads = 64;
  o.model.kv_heads = 8;
  o.model.head_dim = 128;
  o.precision = Precision::bf16_mixed;
  o.limits = {.tokens = 4 * 4096, .documents = 4, .longest = 4096};
  const auto start = std::chrono::steady_clock::now();
  const MemoryPlan plan = Trainer::plan(o).device;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.0);

  // The formulas of the literature: 18 bytes per parameter (f32 master and gradient, two moments,
  // bf16 copy) and, per token and layer in bf16, 12h + 4h kv/heads + 6f + 4 heads, to which the
  // two f32 norm scales are added.
  const int64_t parameters = make_spec(o.model).parameter_count();
  EXPECT_EQ(parameters, 68976648192);
  const int64_t states = at(plan.highest, Category::weights) +
                         at(plan.highest, Category::gradients) +
                         at(plan.highest, Category::optimizer);
  EXPECT_NEAR(static_cast<double>(states) / static_cast<double>(parameters), 18, 1e-4);
  const double per_layer = 12 * 8192 + 4 * 8192 * 8 / 64 + 6 * 28672 + 4 * 64 + 2 * 4;
  const double activations = static_cast<double>(at(plan.highest, Category::activations));
  EXPECT_NEAR(activations / (4.0 * 4096 * 80 * per_layer), 1, 0.03);
}

TEST_P(TrainerOn, StopsBeforeANanReachesTheWeights) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 4, true);
  Planned memory(o);
  Queue& q = memory.q;
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  const Tensor norm = trainer.params().weight(trainer.params().spec().final_norm);
  const float nan = NAN;
  q.upload(norm.rows(0, 1), &nan);
  const Values before = values_of(q, trainer.params().weight(0));
  Sampler sampler(data.size(), 4, 11);
  MicroBatches micro(data, 4, {.max_seq_length = 32, .vocab = config.vocab});
  micro.start(sampler.ids(0));
  try {
    trainer.step(micro, 0);
    FAIL() << "a NaN went through";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("the loss is nan"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("sample 0"), std::string::npos) << e.what();
  }
  EXPECT_EQ(values_of(q, trainer.params().weight(0)), before);
}

TEST_P(TrainerOn, AStepThatIsNotFiniteIsLeftOutWhenTheRecipeSaysSo) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 4, true);
  o.skip_not_finite = true;
  Planned memory(o);
  Queue& q = memory.q;
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  const Tensor norm = trainer.params().weight(trainer.params().spec().final_norm);
  const float good = q.value<float>(norm.rows(0, 1)), nan = NAN;
  q.upload(norm.rows(0, 1), &nan);
  const Values before = values_of(q, trainer.params().weight(0));
  Sampler sampler(data.size(), 4, 11);
  MicroBatches micro(data, 4, {.max_seq_length = 32, .vocab = config.vocab});
  micro.start(sampler.ids(0));
  EXPECT_TRUE(trainer.step(micro, 0).skipped);
  EXPECT_EQ(values_of(q, trainer.params().weight(0)), before);
  EXPECT_EQ(trainer.optimizer().steps(), 0);
  q.upload(norm.rows(0, 1), &good);
  micro.start(sampler.ids(1));
  EXPECT_FALSE(trainer.step(micro, 1).skipped);
  EXPECT_NE(values_of(q, trainer.params().weight(0)), before);
}

// What is wrong with a batch is told when it is its turn, however early it was looked at.
TEST_P(TrainerOn, ABadSampleOfTheNextStepDoesNotEndThisOne) {
  const ModelConfig config = grouped_config();
  const int64_t first = Sampler(2, 1, 11).ids(0)[0];
  Dataset data;
  for (const int64_t s : {0, 1})
    data.add(std::vector<int32_t>(5, static_cast<int32_t>(s == first ? 1 : config.vocab)), 1);
  const auto o =
      options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 1, true);
  Planned memory(o);
  Trainer trainer(memory.q, o);
  trainer.params().initialize(memory.q, 3);
  StepBatches batches(data, 1, 1, 11, {.max_seq_length = 32, .vocab = config.vocab});
  EXPECT_TRUE(std::isfinite(trainer.step(batches.of(0), 0, &batches).loss));
  EXPECT_EQ(trainer.optimizer().steps(), 1);
  try {
    trainer.step(batches.of(1), 1, &batches);
    FAIL() << "an id outside of the vocabulary went through";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::file);
  }
  EXPECT_EQ(trainer.optimizer().steps(), 1);
}

// What minute zero does must not change what the run computes.
TEST_P(TrainerOn, ARehearsalLeavesNoTrace) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(4, config.vocab);
  for (const int64_t micro_batch : {2, 4}) {
    const auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none,
                               micro_batch, micro_batch == 4);
    std::vector<double> losses[2];
    for (const bool rehearsed : {false, true}) {
      Planned memory(o);
      Queue& q = memory.q;
      Trainer trainer(q, o);
      trainer.params().initialize(q, 3);
      Sampler sampler(data.size(), 4, 11);
      MicroBatches micro(data, micro_batch, {.max_seq_length = 32, .vocab = config.vocab});
      if (rehearsed) {
        micro.start(sampler.ids(0));
        EXPECT_TRUE(std::isfinite(trainer.rehearse_step(micro)));
      }
      for (int step = 0; step < 4; ++step) {
        micro.start(sampler.ids(step));
        losses[rehearsed].push_back(trainer.step(micro, step).loss);
      }
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

}  // namespace
}  // namespace capstan::test
