#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <filesystem>
#include <map>
#include <mutex>

#include "checkpoint/checkpoint.h"
#include "checkpoint/save_model.h"
#include "comm/thread_group.h"
#include "planned_run.h"

// One rank of several that train a small model, on any transport.
namespace capstan::test {

struct Case {
  Device device = Device::cpu;
  ModelConfig config = grouped_config();
  Precision precision = Precision::f32_true;
  Recomputation recompute = {};
  std::optional<LoraOptions> lora = {};
  OptimizerOptions optimizer = {};
  int64_t micro_batch = 2, global_batch = 13;
  bool single = false;
  double lr = 1e-2;
  bool skip = false;  // steps that are not finite
  bool staging = false;
  Quantize quantize = Quantize::none;
  std::filesystem::path base = {};  // the model's folder; empty: random weights
  int steps = 4;
  MeshShape mesh = {};
  PipelineOptions pipeline = {};
};

struct Trained {
  std::vector<double> losses, norms;
  double evaluated = 0;
  std::map<int, Values> weights;  // by parameter
  bool operator==(const Trained&) const = default;
};

inline TrainOptions options_of(const Case& c, const Dataset& data, const Sharding& sharding) {
  TrainOptions o =
      options_for(c.device, c.config, data, c.precision, c.recompute, c.micro_batch, c.single);
  o.lora = c.lora;
  o.optimizer = c.optimizer;
  o.quantize = c.quantize;
  o.staging = c.staging;
  o.sharding = sharding;
  o.seed = 4;
  o.skip_not_finite = c.skip;
  o.schedule.lr = c.lr;
  o.sample_positions = 0;
  o.mesh = c.mesh;
  o.pipeline = c.pipeline;
  return o;
}

// Trains as one rank, on memory that was planned for it; adds to `all` what it has of the result.
inline void train_rank(const Case& c, const Dataset& data, const Sharding& sharding,
                       Communicator group, Trained& all, std::mutex& mutex,
                       const Network& network = {}) {
  TrainOptions o = options_of(c, data, sharding);
  o.ranks = group.ranks();
  o.network = network;
  const Ranks share = batch_ranks(group.ranks(), c.mesh);
  o.pipeline.micro_batches =
      (c.global_batch + c.micro_batch * share.size - 1) / (c.micro_batch * share.size);
  const RunPlan plan = Trainer::plan(o);
  Arena arena(plan.device, c.device), host(plan.host, Arena::Pinned{});
  Queue q(c.device, arena, host);
  Trainer trainer(q, o, group);
  if (c.base.empty()) {
    trainer.params().initialize(q, 3);
  } else {
    load_parameters(q, trainer.params(), c.base);
    trainer.params().initialize_adapters(q, 3);
  }
  const BatchOptions options{
      .max_seq_length = 32, .vocab = c.config.vocab, .shares = c.mesh.token_multiple()};
  StepBatches batches(data, c.global_batch, c.micro_batch, 11, options, share);
  std::vector<double> losses, norms;
  for (int step = 0; step < c.steps; ++step) {
    const StepResult r = trainer.step(batches.of(step), step);
    losses.push_back(r.loss);
    norms.push_back(r.grad_norm);
  }
  Sampler in_order(data.size(), data.size(), 0, false);
  MicroBatches held(data, c.micro_batch, options, share);
  held.start(in_order.ids(0));
  const double evaluated = trainer.evaluate(held).mean();
  trainer.params().settle(q);

  const std::lock_guard lock(mutex);
  for (size_t i = 0; i < plan.device.highest.size(); ++i)  // not every rank sees the largest batch
    EXPECT_LE(arena.highest()[i], plan.device.highest[i]);
  if (all.losses.empty()) {
    all.losses = losses;
    all.norms = norms;
    all.evaluated = evaluated;
  }
  if (!c.skip) {  // a NaN is not equal to itself
    EXPECT_EQ(losses, all.losses) << "all ranks know the same loss";
    EXPECT_EQ(norms, all.norms);
    EXPECT_EQ(evaluated, all.evaluated);
  }
  const Parameters& params = trainer.params();
  for (const Range& r : params.updated()) {
    Values& values = all.weights[r.param];
    const Param& p = params.spec().params[static_cast<size_t>(r.param)];
    int64_t size = 0;
    for (const Part& of : p.parts) size += of.whole.numel();
    values.resize(static_cast<size_t>(size), NAN);
    const Values own = values_of(q, params.master(r) ? params.master(r) : params.weight(r));
    // Ranges of ranks that have whole layers may have several parts.
    const Part& part = part_of(p, r);
    const bool whole = params.spec().share.ranks().size == 1;
    const TensorCut cut = whole ? TensorCut{.first = r.first} : cut_in_whole_param(p, part);
    cut.for_runs(whole ? 0 : r.first - part.first_row * p.columns(), r.count,
                 [&](int64_t i, int64_t in_whole, int64_t n) {
                   const int64_t begin = whole ? 0 : part.first_row * p.columns() - r.first;
                   for (int64_t k = 0; k < n; ++k) {
                     const auto value = own[static_cast<size_t>(begin + i + k)];
                     auto& known = values[static_cast<size_t>(in_whole + k)];
                     if (!c.skip && !std::isnan(known)) {
                       EXPECT_EQ(known, value) << "ranks differ in " << part.name;
                     }
                     known = value;
                   }
                 });
  }
}

// As ranks that are threads, one core for each: threads of a tiny model spend their time waiting.
inline Trained train_as_threads(const Case& c, int ranks, const Sharding& sharding,
                                const Dataset& data) {
  Trained all;
  std::mutex mutex;
  omp_set_num_threads(ranks);
  run_as_threads(
      ranks, [&](Communicator group) { train_rank(c, data, sharding, group, all, mutex); },
      std::chrono::seconds(60));
  return all;
}

inline Trained train(const Case& c, int ranks, const Sharding& sharding = kDdp) {
  return train_as_threads(c, ranks, sharding, ragged(29, c.config.vocab));
}

inline void expect_near(const Trained& found, const Trained& expected, double tolerance) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], tolerance * expected.losses[i]) << i;
    EXPECT_NEAR(found.norms[i], expected.norms[i], tolerance * expected.norms[i]) << i;
  }
  EXPECT_NEAR(found.evaluated, expected.evaluated, tolerance * expected.evaluated);
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (const auto& [param, values] : expected.weights)
    EXPECT_LT(error(found.weights.at(param), values), tolerance) << "parameter " << param;
}

// A step of SGD subtracts the gradients themselves.
inline OptimizerOptions plain_sgd() {
  OptimizerOptions o;
  o.kind = OptimizerOptions::Kind::sgd;
  o.weight_decay = 0;
  return o;
}

// A folder with the model that cases begin with.
inline void save_base(const ModelConfig& config, const std::filesystem::path& folder) {
  Arena heap(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, heap);
  Parameters params(heap, make_spec(config), Precision::f32_true, Gradients::none);
  params.initialize(q, 3);
  save_model(q, params, folder);
}

inline const std::pair<const char*, Sharding> kStrategies[] = {
    {"ddp", kDdp}, {"zero1", kZero1}, {"zero2", kZero2}, {"zero3", kZero3}};

}  // namespace capstan::test
