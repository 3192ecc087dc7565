#include "plan/automatic.h"

#include <gtest/gtest.h>

#include "plan/fit.h"

namespace capstan::test {
namespace {

// A recipe for a model of 0.2 B parameters on GPUs of the catalogue.
class Automatic : public testing::Test {
 protected:
  Automatic() {
    recipe.global_batch_size = 64;
    recipe.micro_batch_size.automatic = true;
  }
  std::optional<AutomaticChoice> choice(const Machines& machines) const {
    return best_choice(recipe, nullptr, machines, [&](const Recipe& r) { return with(r); });
  }
  TrainOptions with(const Recipe& r) const {
    TrainOptions o;
    o.device = Device::cuda;
    o.model.vocab = 32000;
    o.model.hidden = 1024;
    o.model.intermediate = 2752;
    o.model.layers = 8;
    o.model.heads = o.model.kv_heads = 16;
    o.model.head_dim = 64;
    o.precision = Precision::bf16_mixed;
    o.limits = {.tokens = 512 * r.micro_batch_size.size,
                .documents = r.micro_batch_size.size,
                .longest = 512};
    o.recompute_to_fit = r.activations.automatic;
    return o;
  }
  static Machines machines(int devices) {
    return machines_with(gpu_catalogue().named("a100-40-sxm"), devices, 1);
  }

  Recipe recipe;
};

TEST_F(Automatic, TheFastestMicroBatchIsTaken) {
  const auto found = choice(machines(1));
  ASSERT_TRUE(found);
  double least = INFINITY;
  int64_t fastest = 0;
  for (int64_t micro = 1; micro <= 64; micro *= 2) {
    PlannedTask task{.recipe = recipe, .options = {}};
    task.recipe.micro_batch_size = micro;
    task.options = with(task.recipe);
    const auto run = run_on(task, machines(1));
    if (!run || !run->fits || run->step->seconds >= least) continue;
    least = run->step->seconds;
    fastest = micro;
  }
  EXPECT_EQ(found->micro_batch_size, fastest);
  EXPECT_GT(fastest, 1);
}

TEST_F(Automatic, WithoutTimesItIsTheLargestThatFits) {
  Machines m = machines(1);
  m.calibration.reset();
  Recipe eight = recipe;
  eight.micro_batch_size = 8;
  m.available.device = Trainer::plan(with(eight)).device.total_bytes;
  EXPECT_EQ(choice(m)->micro_batch_size, 8);
  m.available.device -= 1;
  EXPECT_EQ(choice(m)->micro_batch_size, 4);
  recipe.activations.automatic = true;
  EXPECT_EQ(choice(m)->micro_batch_size, 4) << "more would recompute more";
}

TEST_F(Automatic, NoRankIsWithoutSamples) {
  recipe.global_batch_size = 12;  // of which powers of two are divisors up to four
  EXPECT_LE(choice(machines(1))->micro_batch_size, 4);
  recipe.global_batch_size = 8;
  EXPECT_EQ(choice(machines(8))->micro_batch_size, 1);
}

TEST_F(Automatic, AStrategyIsTakenThatFits) {
  const auto open = choice(machines(4));
  ASSERT_TRUE(open);
  EXPECT_NE(open->strategy.kind, Strategy::automatic);
  EXPECT_NE(open->strategy.kind, Strategy::zero3) << "it fits without, and sends less";
  Machines unknown = machines(4);
  unknown.calibration.reset();
  EXPECT_EQ(choice(unknown)->strategy.kind, Strategy::zero3);
  recipe.strategy.kind = Strategy::zero2;
  EXPECT_EQ(choice(machines(4))->strategy.kind, Strategy::zero2);
}

// What was not measured of several GPUs has the times of their data sheet, to choose a strategy.
TEST_F(Automatic, StrategiesOfGpusAreComparedByDataSheet) {
  const auto known = [&](int devices, const char* name) {
    Machines m = machines(devices);
    m.calibration.reset();
    m.network.reset();
    return with_known_times(m, recipe, with(recipe), name);
  };
  const Machines four = known(4, "NVIDIA A100-SXM4-40GB");
  ASSERT_TRUE(four.calibration && four.network);
  EXPECT_TRUE(four.calibration->from_data_sheet);
  EXPECT_NE(choice(four)->strategy.kind, Strategy::zero3) << "it fits without, and sends less";
  EXPECT_EQ(choice(four)->strategy, choice(machines(4))->strategy) << "as plan --gpu has it";
  EXPECT_FALSE(known(4, "").calibration) << "of no GPU";
  EXPECT_FALSE(known(4, "Unheard Of 9").calibration);
  EXPECT_FALSE(known(1, "NVIDIA A100-SXM4-40GB").calibration) << "one has no strategy";
  EXPECT_FALSE(with_known_times(machines(1), recipe, with(recipe)).calibration);
  EXPECT_TRUE(with_known_times(machines(4), recipe, with(recipe)).calibration);
  TrainOptions on_cpu = with(recipe);
  on_cpu.device = Device::cpu;
  EXPECT_FALSE(with_known_times(machines(4), recipe, on_cpu).calibration);
  recipe.strategy.kind = Strategy::zero2;
  EXPECT_FALSE(known(4, "NVIDIA A100-SXM4-40GB").calibration) << "it is given";
}

// What must be recomputed to fit whole may be slower than what fits as shards.
TEST_F(Automatic, ShardsRatherThanToRecomputeWhereThatIsFaster) {
  recipe.micro_batch_size = 8;
  recipe.activations.automatic = true;
  Machines m = machines(4);
  double seconds[2];
  for (const bool open : {true, false}) {
    PlannedTask task{.recipe = recipe, .options = with(recipe)};
    task.recipe.strategy.kind = Strategy::zero3;
    task.options.recompute_to_fit = false;
    if (open) m.available.device = run_on(task, m)->ranks.most;  // none of it is recomputed
    task.options.recompute_to_fit = true;
    if (open) task.recipe.strategy.kind = Strategy::automatic;
    seconds[open ? 1 : 0] = run_on(task, m)->step->seconds;
  }
  EXPECT_LE(seconds[1], seconds[0]);
}

TEST_F(Automatic, WhatIsGivenIsLeftAlone) {
  recipe.micro_batch_size = 4;
  EXPECT_FALSE(choice(machines(1))) << "nothing is open";
  EXPECT_EQ(choice(machines(2))->micro_batch_size, 4) << "the strategy is";
}

TEST_F(Automatic, NothingIsChosenWhereNothingFits) {
  Machines m = machines(1);
  m.available.device = 1 << 20;
  EXPECT_FALSE(choice(m));
}

}  // namespace
}  // namespace capstan::test
