#include "plan/alternatives.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "planned_task.h"

namespace capstan::test {
namespace {

struct TooLarge {
  PlannedTask task = task_of_1b();
  Machines machines = machines_with(gpu("rtx4090"), 1, 1);
  Fit fit;
  std::vector<Remedy> found;

  TooLarge() {
    machines.available.device = int64_t{28} << 30;
    task.recipe.micro_batch_size = 4;
    task.options.limits = {.tokens = 8192, .documents = 4, .longest = 2048};
    fit = fit_of(task.options, 4, machines.available);
    found = remedies(task, fit, machines);
  }
};

TEST(Remedies, AllFitAndTheFastestComesFirst) {
  const TooLarge too;
  EXPECT_FALSE(too.fit.fits());
  ASSERT_GT(too.found.size(), 2U);
  EXPECT_EQ(too.found.size(), too.fit.changes.size());
  for (const Remedy& r : too.found) {
    EXPECT_LE(r.bytes, too.machines.available.device) << r.what;
    ASSERT_TRUE(r.step) << r.what;
    EXPECT_GT(r.step->seconds, 0) << r.what;
  }
  EXPECT_TRUE(
      std::is_sorted(too.found.begin(), too.found.end(), [](const Remedy& a, const Remedy& b) {
        return a.step->tokens_per_second() > b.step->tokens_per_second();
      }));
}

// A step is one of the whole global batch, with whatever change.
TEST(Remedies, DoNotChangeTheBatch) {
  const TooLarge too;
  for (const Remedy& r : too.found) EXPECT_NEAR(r.step->tokens, 32.0 * 2048, 1) << r.what;
}

TEST(Remedies, AreThoseOfThePlanWhereNoTimesAreKnown) {
  TooLarge too;
  too.machines.calibration.reset();
  const auto found = remedies(too.task, too.fit, too.machines);
  ASSERT_EQ(found.size(), too.fit.changes.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].what, too.fit.changes[i].what);
    EXPECT_FALSE(found[i].step);
  }
}

TEST(Remedies, OfUnknownTimeComeLast) {
  const auto remedy = [](const char* what, double seconds) {
    Remedy r{.what = what, .bytes = 0, .step = {}};
    if (seconds > 0) r.step = StepEstimate{.seconds = seconds, .tokens = 1};
    return r;
  };
  std::vector<Remedy> all = {remedy("unknown", 0), remedy("slow", 3), remedy("unknown, too", 0),
                             remedy("fast", 1), remedy("middle", 2)};
  fastest_first(all);
  std::vector<std::string> order;
  for (const Remedy& r : all) order.push_back(r.what);
  EXPECT_EQ(order, (std::vector<std::string>{"fast", "middle", "slow", "unknown", "unknown, too"}));
}

TEST(Scaling, BeginsWithTheFewestThatFit) {
  const auto points = scaling(task_of_1b(), gpu("rtx4090"), 8, 32);
  ASSERT_GE(points.size(), 3U);
  const auto first =
      std::find_if(points.begin(), points.end(), [](const ScalePoint& p) { return p.run.fits; });
  ASSERT_NE(first, points.end());
  EXPECT_LE(first - points.begin(), 1) << "of what is too few, one row is enough";
  EXPECT_DOUBLE_EQ(first->efficiency, 1);
  if (first != points.begin()) {
    EXPECT_EQ(2 * points[0].machines.ranks(), first->machines.ranks());
    EXPECT_FALSE(points[0].run.step);
    EXPECT_EQ(points[0].efficiency, 0);
  }
  const double each = first->run.step->tokens_per_second() / first->machines.ranks();
  for (auto p = first; p != points.end(); ++p) {
    EXPECT_TRUE(p->run.fits);
    EXPECT_NEAR(p->efficiency, p->run.step->tokens_per_second() / p->machines.ranks() / each, 1e-9);
    EXPECT_LE(p->efficiency, 1.02) << "more GPUs do not make each of them faster";
    if (p != first) {
      EXPECT_EQ(p->machines.ranks(), 2 * (p - 1)->machines.ranks());
    }
  }
  EXPECT_EQ(points.back().machines.ranks(), 32);
  EXPECT_EQ(points.back().machines.devices, 8);
}

TEST(Scaling, EndsWhereAStepHasNoSampleForAnotherRank) {
  for (const ScalePoint& p : scaling(task_of_1b(4), gpu("h100-sxm"), 8, 64))
    EXPECT_LE(p.machines.ranks(), 4);
}

TEST(Scaling, SkipsWhatTheMeshNeedsMoreFor) {
  PlannedTask task = task_of_1b();
  task.recipe.tensor_parallel = 4;
  const auto points = scaling(task, gpu("h100-sxm"), 8, 16);
  ASSERT_FALSE(points.empty());
  EXPECT_EQ(points.front().machines.ranks(), 4);
  EXPECT_DOUBLE_EQ(points.front().efficiency, 1);
}

TEST(Sensitivities, ArePositiveAndSorted) {
  const PlannedTask task = task_of_1b();
  const Machines machines =
      machines_with(gpu("a100-80-sxm"), 8, 2, {.gpu = "a100-80-sxm", .across = 1e9});
  const auto run = run_on(task, machines);
  ASSERT_TRUE(run && run->step);
  const auto all = sensitivities(task, run->options, machines);
  EXPECT_GE(all.size(), 3U);
  for (const Sensitivity& s : all) {
    EXPECT_GT(s.change, 0) << s.what;
    EXPECT_NEAR(s.step.seconds, (1 + s.change) * run->step->seconds, 1e-9 * s.step.seconds);
  }
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const auto& a, const auto& b) { return a.change > b.change; }));
  EXPECT_EQ(all.front().what, "links between machines half as fast") << "1 GB/s is little";
}

// Everything at nine tenths of its speed takes 1 / 0.9 of the time.
TEST(Sensitivities, AddUpToTheWholeStep) {
  PlannedTask task = task_of_1b();
  task.options.limits = {.tokens = 8192, .documents = 8, .longest = 1024};
  const Machines machines = machines_with(gpu("h200"), 1, 1);
  const auto run = run_on(task, machines);
  ASSERT_TRUE(run && run->step);
  double sum = 0;
  for (const Sensitivity& s : sensitivities(task, run->options, machines)) sum += s.change;
  // The few µs of each call are no part of any resource.
  EXPECT_NEAR(sum, 1 / 0.9 - 1, 0.01);
  EXPECT_LT(sum, 1 / 0.9 - 1);
}

TEST(Sensitivities, AreNoneWithoutTimes) {
  const PlannedTask task = task_of_1b();
  Machines machines = machines_with(gpu("h100-sxm"), 1, 1);
  machines.calibration.reset();
  EXPECT_TRUE(sensitivities(task, task.options, machines).empty());
}

}  // namespace
}  // namespace capstan::test
