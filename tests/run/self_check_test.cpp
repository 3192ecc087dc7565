// A step of several ranks beside that of one: see run/self_check.h.

#include "run/self_check.h"

#include <omp.h>

#include <cmath>

#include "base/rng.h"
#include "comm/thread_group.h"
#include "model/known_models.h"
#include "short_run.h"

namespace capstan::test {
namespace {

// On how many ranks, and how they share the work.
struct Ways {
  const char* name;
  int ranks;
  Strategy strategy = Strategy::ddp;
  int tensor = 1, context = 1, pipeline = 1;
  bool overlap = false;
};
constexpr Ways kWays[] = {
    {"ddp", 3},
    {"zero3", 3, Strategy::zero3},
    {"tensor", 2, Strategy::ddp, 2},
    {"tensor, overlapped", 2, Strategy::ddp, 2, 1, 1, true},
    {"context", 2, Strategy::ddp, 1, 2},
    {"tensor and context", 4, Strategy::zero3, 2, 2},
    {"stages", 2, Strategy::ddp, 1, 1, 2},
};
constexpr Precision kChecked[] = {Precision::f32_true,  Precision::bf16_mixed,
                                  Precision::bf16_true, Precision::f16_mixed,
                                  Precision::f16_true,  Precision::fp8_mixed};

Recipe recipe_for(const TempFolder& folder, Precision precision, const Ways& ways) {
  Recipe r = short_recipe(folder);
  r.accelerator = Accelerator::cpu;
  r.precision = precision;
  r.global_batch_size = 6;
  r.micro_batch_size = 1;
  r.strategy = ways.strategy;
  r.tensor_parallel = ways.tensor;
  r.context_parallel = ways.context;
  r.pipeline_parallel = ways.pipeline;
  if (ways.overlap) r.tensor_parallel_overlap = Overlap::on;
  return r;
}

// 64 channels and all kinds of parameters; the targets of the first sample may be left out.
RunInputs checked_inputs(int64_t layers, bool all_targets = true) {
  RunInputs in = short_inputs(0, 0);
  const Rng rng({.seed = 3});
  for (uint64_t sample = 0, draw = 0; sample < 6; ++sample) {
    std::vector<int32_t> tokens(8 + sample);
    for (int32_t& token : tokens) token = static_cast<int32_t>(rng.below(draw++, 31));
    in.data.train.add(tokens, sample > 0 || all_targets ? 1 : std::ssize(tokens));
  }
  ModelConfig& c = in.model.config;
  c.hidden = 64;
  c.intermediate = 96;
  c.layers = layers;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.qkv_bias = c.qk_norm = true;
  return in;
}

// Trains one step on the ranks and, of `expected`, on one, as TrainingRun::self_check does. `spoil`
// may change what a rank has of the gradients.
template <class Spoil>
SelfCheck checked(const Recipe& recipe, const RunInputs& in, const Ways& ways, const Spoil& spoil,
                  const RunInputs& expected) {
  SelfCheck check;
  omp_set_num_threads(ways.ranks);
  const TrainOptions one = run_options(recipe, Task::pretrain, in);
  const auto steps = [&](const RunInputs& of, const Recipe& r, const Ranks& ranks) {
    return StepBatches(of.data.train, r.global_batch_size, r.micro_batch_size.size, 1,
                       batch_options(r, of), ranks);
  };
  const auto with_trainer = [&](TrainOptions o, const Communicator& group, const auto& use) {
    const RunPlan plan = Trainer::plan(o);
    Arena memory(plan.device, o.device), host(plan.host, Arena::Pinned{});
    Queue q(o.device, memory, host);
    Trainer trainer(q, o, group);
    trainer.params().initialize(q, 5);
    use(q, trainer);
  };
  run_as_threads(
      ways.ranks,
      [&](Communicator group) {
        TrainOptions o = one;
        set_ranks(o, recipe, group.ranks(), {.room = group.needs_room()});
        o.mesh.overlap = ways.overlap;
        with_trainer(o, group, [&](Queue& q, Trainer& trainer) {
          std::vector<float> mine;
          StepBatches batches = steps(in, recipe, batch_ranks(o.ranks, o.mesh));
          const auto ranks = trainer.try_step(batches.of(0), 0,
                                              [&] { mine = owned_gradients(q, trainer.params()); });
          spoil(group.rank(), trainer.params(), mine);
          const auto channel = group.open_channel("self check");
          if (group.rank() > 0)
            return compare_gradients(check, q, nullptr, trainer.params(), mine, *channel);
          check.ranks = ranks;
          check.allowed = allowed_difference(o, recipe.global_batch_size);
          Recipe alone = recipe;
          alone.use_one_rank();
          with_trainer(one, {}, [&](Queue& own, Trainer& whole) {
            StepBatches all = steps(expected, alone, {});
            check.alone = whole.try_step(all.of(0), 0, [&] {
              compare_gradients(check, own, &whole.params(), trainer.params(), mine, *channel);
            });
          });
        });
      },
      std::chrono::seconds(60));
  return check;
}

constexpr auto kUnspoilt = [](int, const Parameters&, std::vector<float>&) {};

TEST(SelfChecks, PassWhereRoundingAloneDiffers) {
  const TempFolder folder;
  const RunInputs in = checked_inputs(3);
  const Quiet quiet;
  for (const Precision precision : kChecked)
    for (const Ways& ways : kWays) {
      if (ways.overlap && precision == Precision::fp8_mixed) continue;
      const SelfCheck c = checked(recipe_for(folder, precision, ways), in, ways, kUnspoilt, in);
      EXPECT_TRUE(c.agrees()) << name_of(precision) << ", " << ways.name << ": "
                              << c.text(ways.ranks);
    }
}

// One gradient that is twice as large, and a rank that was forgotten in the sum of another.
TEST(SelfChecks, FindMistakesInEveryPrecision) {
  const TempFolder folder;
  const RunInputs in = checked_inputs(3);
  const Quiet quiet;
  for (const Precision precision : kChecked)
    for (const Ways& ways : kWays) {
      if (ways.overlap && precision == Precision::fp8_mixed) continue;
      const Recipe r = recipe_for(folder, precision, ways);
      std::string spoilt;
      const auto twice = [&](int rank, const Parameters& params, std::vector<float>& mine) {
        if (rank > 0) return;
        const Range& one = params.owned()[1];
        size_t first = static_cast<size_t>(params.owned()[0].count);
        for (int64_t i = 0; i < one.count; ++i) mine[first++] *= 2;
        spoilt = params.spec().params[static_cast<size_t>(one.param)].name;
      };
      const SelfCheck c = checked(r, in, ways, twice, in);
      EXPECT_FALSE(c.agrees()) << name_of(precision) << ", " << ways.name << ": "
                               << c.text(ways.ranks);
      EXPECT_EQ(c.parameter, spoilt);
    }
}

// One of the six micro-batches.
TEST(SelfChecks, FindAMicroBatchThatWasLeftOut) {
  const TempFolder folder;
  const RunInputs in = checked_inputs(3), without = checked_inputs(3, false);
  const Quiet quiet;
  for (const Precision precision : kChecked)
    for (const Ways& ways : kWays) {
      if (ways.overlap && precision == Precision::fp8_mixed) continue;
      const Recipe r = recipe_for(folder, precision, ways);
      const SelfCheck c = checked(r, without, ways, kUnspoilt, in);
      EXPECT_GT(c.difference, c.allowed)
          << name_of(precision) << ", " << ways.name << ": " << c.text(ways.ranks);
    }
}

TEST(SelfChecks, AllowMoreWithFewerBitsMoreLayersAndMoreRounds) {
  TrainOptions o;
  o.model = known_model("open_llama_7b").value();
  o.limits = {.tokens = 4096, .documents = 2, .longest = 2048};
  const auto allowed = [&](Precision precision, int64_t micro_batches = 8) {
    o.precision = precision;
    return allowed_difference(o, micro_batches);
  };
  EXPECT_LT(allowed(Precision::f32_true), 1e-4);
  EXPECT_EQ(allowed(Precision::bf16_mixed), allowed(Precision::f32_true)) << "passes are the same";
  EXPECT_LT(allowed(Precision::bf16_true), 0.1);
  EXPECT_GT(allowed(Precision::bf16_true, 64), 2 * allowed(Precision::bf16_true));
  o.mesh.tensor = 8;
  EXPECT_LT(allowed(Precision::f32_true), 1e-3);
  EXPECT_LT(allowed(Precision::f16_mixed), 0.02);
  EXPECT_GT(allowed(Precision::bf16_mixed), 7 * allowed(Precision::f16_mixed));
  const double context = [&] {
    o.mesh = {.context = 8};
    return allowed(Precision::bf16_mixed);
  }();
  o.mesh = {.tensor = 8};
  EXPECT_LT(context, allowed(Precision::bf16_mixed)) << "fewer sums are split";
  const double shallow = allowed(Precision::bf16_mixed);
  o.model.layers = 80;
  EXPECT_GT(allowed(Precision::bf16_mixed), shallow);
  EXPECT_LT(allowed(Precision::bf16_mixed), 0.25) << "half of a gradient, or twice of it, is found";
}

}  // namespace
}  // namespace capstan::test
