#include "plan/run_on.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "data/dataset/dataset.h"
#include "planned_task.h"

namespace capstan::test {
namespace {

double parts(const StepEstimate& step) {
  return std::accumulate(step.by_kind.begin(), step.by_kind.end(), 0.0) +
         (step.exposed + step.waiting) * step.seconds;
}

RunThere there(const PlannedTask& task, const Machines& machines) {
  const auto run = run_on(task, machines);
  EXPECT_TRUE(run.has_value());
  EXPECT_TRUE(run && run->fits && run->step);
  return run.value_or(RunThere());
}

// What a step is made of is all of it, however the ranks share the work.
TEST(RunOn, KindsOfOpsAndWaitingAreTheWholeStep) {
  struct Case {
    const char* name;
    int devices, machines;
    Strategy strategy;
    int tensor, pipeline;
  };
  for (const Case& c : {Case{"one GPU", 1, 1, Strategy::automatic, 1, 1},
                        {"ddp", 4, 1, Strategy::ddp, 1, 1},
                        {"zero3", 4, 1, Strategy::zero3, 1, 1},
                        {"zero3 on two machines", 4, 2, Strategy::zero3, 1, 1},
                        {"tensor", 4, 1, Strategy::ddp, 4, 1},
                        {"pipeline", 4, 1, Strategy::ddp, 1, 4},
                        {"tensor and pipeline", 4, 1, Strategy::ddp, 2, 2}}) {
    PlannedTask task = task_of_1b();
    task.recipe.strategy = c.strategy;
    task.recipe.tensor_parallel = c.tensor;
    task.recipe.pipeline_parallel = c.pipeline;
    const RunThere run = there(task, machines_with(gpu("h100-sxm"), c.devices, c.machines));
    ASSERT_TRUE(run.step);
    for (const double seconds : run.step->by_kind) EXPECT_GE(seconds, 0) << c.name;
    EXPECT_GE(run.step->exposed, 0) << c.name;
    EXPECT_NEAR(parts(*run.step), run.step->seconds, 0.01 * run.step->seconds) << c.name;
    EXPECT_EQ(run.step->tokens, 32.0 * 1024) << c.name;
  }
}

TEST(RunOn, LeavesTheStrategyToWhatIsFastest) {
  PlannedTask task = task_of_1b();
  const Machines machines = machines_with(gpu("a100-80-sxm"), 4, 1);
  const RunThere automatic = there(task, machines);
  double fastest = INFINITY;
  for (const auto kind : {Strategy::ddp, Strategy::zero1}) {
    task.recipe.strategy = kind;
    fastest = std::min(fastest, there(task, machines).step->seconds);
  }
  EXPECT_EQ(automatic.step->seconds, fastest);
  EXPECT_EQ(automatic.ranks.most, Trainer::plan(automatic.options).device.total_bytes);
}

TEST(RunOn, SharesMoreWhereLessDoesNotFit) {
  PlannedTask task = task_of_1b();
  Machines machines = machines_with(gpu("a100-80-sxm"), 4, 1);
  task.recipe.strategy = Strategy::zero3;
  machines.available.device = there(task, machines).ranks.most;
  task.recipe.strategy = Strategy::automatic;
  EXPECT_EQ(there(task, machines).options.sharding.weights, Hold::shard);
  machines.available.device /= 4;
  const auto none = run_on(task, machines);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->fits);
  EXPECT_FALSE(none->step) << "what does not fit takes no time";
}

TEST(RunOn, RecomputesNoMoreThanItMust) {
  PlannedTask task = task_of_1b();
  task.options.recompute_to_fit = true;
  Machines machines = machines_with(gpu("h100-sxm"), 1, 1);
  const RunThere roomy = there(task, machines);
  EXPECT_EQ(roomy.options.recompute, Recompute::none);
  machines.available.device = roomy.ranks.most - 1;
  const RunThere tight = there(task, machines);
  EXPECT_NE(tight.options.recompute, Recompute::none);
  EXPECT_GT(tight.step->seconds, roomy.step->seconds);
}

TEST(RunOn, IsNothingWhereTheMeshDoesNotDivideTheRanks) {
  PlannedTask task = task_of_1b();
  task.recipe.tensor_parallel = 2;
  EXPECT_FALSE(run_on(task, machines_with(gpu("h100-sxm"), 3, 1)));
  EXPECT_FALSE(run_on(task, machines_with(gpu("h100-sxm"), 1, 1)));
}

TEST(RunOn, CountsTheMemoryOfTheHost) {
  PlannedTask task = task_of_1b();
  task.options.optimizer.paged = true;
  Machines machines = machines_with(gpu("h100-sxm"), 1, 1);
  EXPECT_TRUE(run_on(task, machines)->fits);
  machines.available.host = 1 << 20;
  EXPECT_FALSE(run_on(task, machines)->fits);
}

TEST(RunOn, StagesHaveTheirOwnMemory) {
  PlannedTask task = task_of_1b();
  task.recipe.pipeline_parallel = 4;
  const RunThere run = there(task, machines_with(gpu("h100-sxm"), 4, 2));
  const auto classes = rank_classes(run.options, plan_ranks(run.options, {}).needs);
  ASSERT_GT(classes.size(), 1U);
  int ranks = 0;
  int64_t most = 0;
  for (const RankClass& c : classes) {
    ranks += c.ranks;
    most = std::max(most, c.bytes);
    EXPECT_GE(c.bytes, run.ranks.least) << c.name;
  }
  EXPECT_EQ(ranks, 8);
  EXPECT_EQ(most, run.ranks.most);
  EXPECT_EQ(classes.front().name, "stage 0");
}

TEST(RunOn, OnAGpuWithoutBf16TakesF16) {
  PlannedTask task = task_of_1b();
  EXPECT_EQ(on_gpu(task, gpu("v100-32")).precision, Precision::f16_mixed);
  EXPECT_EQ(on_gpu(task, gpu("h100-sxm")).precision, Precision::bf16_mixed);
  task.recipe.precision = Precision::bf16_true;
  EXPECT_EQ(on_gpu(task, gpu("v100-32")).precision, Precision::f16_true);
}

// Few steps of long data are simulated, and of each the samples of one rank. The time is that of
// all.
TEST(RunOn, TakesTheMeanOfAllSamples) {
  RunInputs inputs;
  for (int i = 0; i < 4096; ++i)  // sorted: the first are the shortest
    inputs.data.train.add(std::vector<int32_t>(static_cast<size_t>(i / 8 + 2), 1), 0);
  inputs.max_seq_length = 1024;
  PlannedTask task = task_of_1b(64);
  inputs.model.config = task.options.model;
  task.inputs = &inputs;
  const RunThere one = there(task, machines_with(gpu("h100-sxm"), 1, 1));
  const double mean = 64 * (4096 / 8 - 1 + 2) / 2.0;
  EXPECT_NEAR(one.step->tokens, mean, 1e-3 * mean);
  const RunThere four = there(task, machines_with(gpu("h100-sxm"), 4, 1));
  EXPECT_NEAR(four.step->tokens, mean, 1e-3 * mean);
  EXPECT_NEAR(parts(*four.step), four.step->seconds, 0.01 * four.step->seconds);
  EXPECT_NEAR(four.step->seconds, one.step->seconds / 4, 0.15 * one.step->seconds / 4);
}

}  // namespace
}  // namespace capstan::test
