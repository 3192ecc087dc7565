// Whole runs on several ranks: the same steps, the same folder, whichever ranks go on with it.

#include <omp.h>

#include <atomic>
#include <cmath>

#include "base/files.h"
#include "base/log.h"
#include "checkpoint/manifest.h"
#include "comm/thread_group.h"
#include "ops/elementwise.h"
#include "run/self_check.h"
#include "short_run.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

// Runs the recipe on ranks that are threads, as far as `last`; returns the validation loss.
double run(const Recipe& r, int ranks, const SharedInputs& inputs, int64_t last = INT64_MAX) {
  std::atomic<double> loss = NAN;
  omp_set_num_threads(ranks);  // one for each: threads of a tiny model spend their time waiting
  run_as_threads(
      ranks,
      [&](Communicator group) {
        const log::Quiet quiet(group.rank() != 0);
        TrainingRun run(r, Task::pretrain, inputs, {}, group);
        run.stop_after(last);
        run.initialize();
        if (run.finished()) return;
        run.verify();
        run.train();
        if (run.complete()) run.finish();
        const double found = *run.validate();
        if (run.leads()) loss = found;
      },
      std::chrono::seconds(60));
  return loss;
}

Recipe recipe_for(const TempFolder& folder, const std::string& name, Strategy strategy) {
  Recipe r = short_recipe(folder);
  r.out_dir = folder.path() / name;
  r.strategy = strategy;
  r.accelerator = Accelerator::cpu;
  r.lr = 0.01;
  r.min_lr = 0;
  r.max_steps = 9;
  r.global_batch_size = 5;
  r.micro_batch_size = 1;
  r.save_interval = 2;
  r.eval_interval = 4;
  return r;
}

constexpr Strategy kAll[] = {Strategy::automatic, Strategy::ddp, Strategy::zero1, Strategy::zero2,
                             Strategy::zero3};

TEST(RunOnRanks, AnyStrategyEndsWhereOneDeviceDoes) {
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  const double alone = run(recipe_for(folder, "alone", Strategy::ddp), 1, inputs);
  for (const int ranks : {2, 3, 7})
    for (const Strategy strategy : kAll) {
      const std::string name = fmt::format("{}-{}", name_of(strategy), ranks);
      const Recipe r = recipe_for(folder, name, strategy);
      EXPECT_NEAR(run(r, ranks, inputs), alone, 1e-4 * alone) << name;
      EXPECT_NO_THROW(verify_checkpoint(fs::path(r.out_dir) / "final"));
      const std::string metrics = read_text(fs::path(r.out_dir) / "logs/csv/version_0/metrics.csv");
      EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 11) << "one rank writes it";
    }
}

TEST(RunOnRanks, OtherRanksGoOnWhereSomeStopped) {
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  const double alone = run(recipe_for(folder, "alone", Strategy::ddp), 1, inputs);
  Recipe r = recipe_for(folder, "moved", Strategy::zero3);
  r.resume.mode = Resume::Mode::newest_if_any;
  int64_t step = 0;
  for (const auto& [ranks, strategy] : {std::pair{2, Strategy::zero3},
                                        {1, Strategy::ddp},
                                        {5, Strategy::zero1},
                                        {3, Strategy::zero2}}) {
    r.strategy = strategy;
    run(r, ranks, inputs, step += 2);
    EXPECT_TRUE(fs::exists(fs::path(r.out_dir) / fmt::format("step-{:08}", step)));
  }
  EXPECT_NEAR(run(r, 4, inputs), alone, 1e-4 * alone);
  // Nothing is left to do, on any ranks.
  EXPECT_TRUE(std::isnan(run(r, 2, inputs)));
}

TEST(RunOnRanks, TwoRunsHaveTheSameBits) {
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  const auto model = [&](const char* name, int64_t stop) {
    Recipe r = recipe_for(folder, name, Strategy::zero2);
    r.resume.mode = Resume::Mode::newest_if_any;
    run(r, 3, inputs, stop);
    run(r, 3, inputs);
    return read_text(fs::path(r.out_dir) / "final" / "model.safetensors");
  };
  EXPECT_EQ(model("one", INT64_MAX) == model("two", 3), true);
}

TEST(RunOnRanks, RanksThatDifferAreRefusedWithBothValues) {
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  const std::string message = message_of(Fault::usage, [&] {
    run_as_threads(2, [&](Communicator group) {
      const Recipe r = recipe_for(folder, "out", Strategy::ddp);
      TrainingRun(r, Task::pretrain, inputs, {"", group.rank() == 0 ? "0.1 (aa)" : "0.1 (bb)"},
                  group);
    });
  });
  EXPECT_NE(message.find("ranks differ in the program: rank 0 on "), std::string::npos) << message;
  EXPECT_NE(message.find("0.1 (aa)"), std::string::npos) << message;
  EXPECT_NE(message.find("0.1 (bb)"), std::string::npos) << message;
}

TEST(RunOnRanks, CheckThemselvesAgainstOneRank) {
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  for (const Strategy strategy : kAll) {
    Recipe r = recipe_for(folder, std::string(name_of(strategy)), strategy);
    r.self_check = true;
    r.max_steps = 1;
    EXPECT_NO_THROW(run(r, 3, inputs)) << name_of(strategy);
  }
}

TEST(RunOnRanks, CheckThemselvesOnAGpu) {
  if (std::string_view why; !cuda_present(&why)) GTEST_SKIP() << why;
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3})
    for (const bool offload : {false, true}) {
      Recipe r = recipe_for(folder, fmt::format("{}{}", name_of(strategy), offload), strategy);
      r.accelerator = Accelerator::cuda;
      r.strategy.offload = offload;
      r.self_check = true;
      r.max_steps = 1;
      EXPECT_NO_THROW(run(r, 3, inputs)) << name_of(strategy);
    }
}

TEST(SelfCheck, FindsTheGradientThatDiffers) {
  Arena arena(Arena::Heap{}, Device::cpu);
  Queue q(Device::cpu, arena);
  Parameters params(arena, make_spec(short_inputs(1, 0).model.config), Precision::f32_true,
                    Gradients::kept);
  for (int i = 0; i < params.count(); ++i) fill(q, params.grad(i), 2);
  std::vector<float> mine = owned_gradients(q, params);
  const auto check = [&] {
    SelfCheck found{.ranks = {1, 1}, .alone = {1, 1}, .allowed = 0.1, .parameter = {}};
    compare_gradients(found, q, &params, params, mine, *channel_of_one());
    return found;
  };
  EXPECT_EQ(check().difference, 0);
  EXPECT_TRUE(check().agrees());
  const Range& last = params.owned().back();
  mine.back() = 2.5f;
  EXPECT_EQ(check().difference, 0.25);
  EXPECT_EQ(check().parameter, params.spec().params[static_cast<size_t>(last.param)].name);
  EXPECT_FALSE(check().agrees());
  mine.back() = NAN;
  EXPECT_FALSE(check().agrees());
  SelfCheck other{.ranks = {1, 1}, .alone = {1.2, 1}, .allowed = 0.1, .parameter = {}};
  EXPECT_FALSE(other.agrees()) << "the loss";
}

TEST(RunOnRanks, AStepThatIsNotFiniteEndsAllWithTheStateSaved) {
  const Quiet quiet;
  const TempFolder folder;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(13, 4));
  Recipe r = recipe_for(folder, "out", Strategy::zero3);
  r.lr = 1e30;
  const std::string message = message_of(Fault::usage, [&] { run(r, 3, inputs); });
  EXPECT_NE(message.find("step "), std::string::npos) << message;
}

}  // namespace
}  // namespace capstan::test
