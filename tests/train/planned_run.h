#pragma once

#include "data/batch/step_batches.h"
#include "data/dataset/sampler.h"
#include "engine.h"
#include "train/trainer.h"

// Small runs on memory that was planned, and what they leave: for the contracts of a trainer.
namespace capstan::test {

inline ModelConfig all_features() {
  ModelConfig c = grouped_config();
  c.architecture = "Qwen3ForCausalLM";
  c.qk_norm = c.tied = c.qkv_bias = c.o_bias = true;
  return c;
}

// Samples of 2 to 20 tokens, some with masked prompts.
inline Dataset ragged(int64_t samples, int64_t vocab) {
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

// All of the same length.
inline Dataset even(int64_t samples, int64_t vocab) {
  Dataset data;
  const Rng rng({.seed = 6});
  for (int64_t s = 0; s < samples; ++s) {
    std::vector<int32_t> tokens(17);
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>(
          rng.below(static_cast<uint64_t>(s) * 32 + i, static_cast<uint64_t>(vocab)));
    data.add(tokens, 0);
  }
  return data;
}

inline TrainOptions options_for(Device device, const ModelConfig& config, const Dataset& data,
                                Precision precision, const Recomputation& policy,
                                int64_t micro_batch, bool single) {
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
inline RunPlan plan_without_host(const TrainOptions& o) {
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
inline RunResult run(const TrainOptions& o, const Dataset& data, int64_t global,
                     int64_t micro_batch, int steps, const Way& way = {}) {
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

}  // namespace capstan::test
