#include "run/run.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <fstream>
#include <set>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "data/tokenizer/tokenizer_json.h"
#include "machine/name.h"
#include "plan/calibration.h"
#include "recipe/recipe_input.h"
#include "recipe/recipe_yaml.h"
#include "short_run.h"
#include "support/message_of.h"
#include "support/variable.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

TEST(TrainingRun, LearnsAndSavesAFolderThatOpensAgain) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.lr = 0.01;
  r.min_lr = 0;
  r.max_steps = 30;
  TrainingRun run(r, Task::pretrain, short_inputs(12, 3));
  run.initialize();
  const double before = *run.validate();
  run.verify();
  EXPECT_TRUE(fs::is_empty(r.out_dir)) << "a rehearsal leaves nothing behind";
  run.train();
  run.finish();
  EXPECT_LT(*run.validate(), before);
  EXPECT_NE(run.report().find("Training Time"), std::string::npos);

  const fs::path final = fs::path(r.out_dir) / "final";
  EXPECT_NO_THROW(verify_checkpoint(final));
  EXPECT_EQ(read_config(final).vocab, 31);
  EXPECT_TRUE(is_byte_tokenizer(read_text(final / "tokenizer.json"), "tokenizer.json"));
  RecipeInput back(Task::pretrain, defaults_of(Task::pretrain));
  back.read_file(final / "hyperparameters.yaml");
  EXPECT_EQ(recipe_yaml(back.finish(), Task::pretrain), recipe_yaml(r, Task::pretrain));
  for (const char* file : {"loss.svg", "report.html", "logs/csv/version_0/metrics.csv"})
    EXPECT_TRUE(fs::exists(fs::path(r.out_dir) / file)) << file;

  // Going on from its weights begins at the loss where it was.
  RunInputs next = short_inputs(12, 3);
  next.model.folder = final;
  r.out_dir = folder / "again";
  TrainingRun again(r, Task::pretrain, std::move(next));
  again.initialize();
  EXPECT_EQ(again.validate(), run.validate());
}

TEST(TrainingRun, SetsThePredictedStepBesideTheMeasuredOneWhereTheMachineWasMeasured) {
  const Quiet quiet;
  const TempFolder folder;
  const Variable cache("CAPSTAN_CACHE", (folder / "cache").c_str());
  Calibration c;
  c.device = parse_accelerator("auto");
  c.name = machine_name(c.device);
  c.date = "2026-08-05";
  c.seconds_per_call = 1e-3;
  c.bytes_per_second = c.to_device_per_second = c.to_host_per_second = 1e9;
  if (c.device == Device::cpu) c.to_device_per_second = c.to_host_per_second = 0;
  for (const char* type : {"f32", "bf16"}) c.types[type].rates.fill(1e9);
  for (const bool measured : {false, true}) {
    if (measured) write_calibration(calibration_path(c.name), c);
    Recipe r = short_recipe(folder);
    r.out_dir = folder / (measured ? "with" : "without");
    TrainingRun run(r, Task::pretrain, short_inputs(12, 3));
    run.initialize();
    run.verify();
    run.train();
    run.finish();
    const RunSummary s = run.summary();
    EXPECT_GT(s.step_seconds, 0);
    EXPECT_EQ(s.predicted_seconds > 1e-3, measured) << s.predicted_seconds;
    EXPECT_EQ(run.report().find("s predicted, ") != std::string::npos, measured) << run.report();
    const std::string page = read_text(fs::path(r.out_dir) / "report.html");
    EXPECT_EQ(page.find("from the calibration of ") != std::string::npos, measured);
  }
}

// What validations compute is none of a step's work, as their time is none of its time.
TEST(TrainingRunReport, ArithmeticIsThatOfTheSteps) {
  const Quiet quiet;
  const TempFolder folder;
  double flops[2] = {};
  for (const bool often : {false, true}) {
    Recipe r = short_recipe(folder);
    r.out_dir = folder / (often ? "often" : "never");
    r.eval_interval = often ? 1 : 1000;
    TrainingRun run(r, Task::pretrain, short_inputs(12, 3));
    run.initialize();
    run.verify();
    run.train();
    run.finish();
    flops[often] = run.summary().flops;
  }
  EXPECT_GT(flops[0], 0);
  EXPECT_NEAR(flops[1], flops[0], 0.1 * flops[0]);
}

// The weights' bytes and the losses of a run; `stops` are steps after which it is begun anew from
// its newest checkpoint.
struct Trace {
  std::string weights, metrics;
};
Trace trace(Recipe r, std::vector<int64_t> stops) {
  const Quiet quiet;
  const TempFolder folder;
  r.out_dir = folder / "out";
  r.resume.mode = Resume::Mode::newest_if_any;
  const int64_t all = *r.max_steps;
  stops.push_back(all);
  for (const int64_t stop : stops) {
    TrainingRun run(r, Task::pretrain, short_inputs(13, 3));
    run.initialize();
    if (stop < all) {
      run.stop_after(stop);
      run.train();
      continue;
    }
    run.train();
    run.finish();
  }
  // The time of a step is the only column that differs from run to run.
  std::string losses;
  for (const MetricsRow& row : read_metrics(fs::path(r.out_dir) / "logs/csv/version_0/metrics.csv"))
    losses += fmt::format("{} {} {} {} {} {} {}\n", row.epoch, row.iter, row.step,
                          row.learning_rate.value_or(-1), row.loss.value_or(-1), row.total_tokens,
                          row.val_loss.value_or(-1));
  return {read_text(fs::path(r.out_dir) / "final" / "model.safetensors"), losses};
}

TEST(TrainingRun, ResumesBitForBit) {
  for (const Precision precision : kPrecisions)
    for (const OptimizerKind optimizer :
         {OptimizerKind::adamw, OptimizerKind::adamw8bit, OptimizerKind::sgd}) {
      Recipe r = short_recipe(TempFolder());
      r.precision = precision;
      r.optimizer.kind = optimizer;
      r.momentum = 0.9;
      r.loss_scale = 0x1p50;  // in f16: several steps are left out, at each stop and after it
      r.loss_scale_interval = 2;
      r.max_steps = 11;
      r.lr_warmup_steps = 3;
      r.eval_interval = 2;
      r.save_interval = 3;
      const Trace whole = trace(r, {});
      const Trace parts = trace(r, {1, 4, 5, 10});
      EXPECT_TRUE(whole.weights == parts.weights)
          << name_of(precision) << " " << name_of(optimizer);
      EXPECT_EQ(whole.metrics, parts.metrics) << name_of(precision) << " " << name_of(optimizer);
    }
}

TEST(TrainingRun, KeepsItsMeasurementsWhenItGoesOnInOtherMicroBatches) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.log_interval = 1;
  r.max_steps = 4;
  r.micro_batch_size = 1;
  for (const int64_t stop : {2, 4}) {
    TrainingRun run(r, Task::pretrain, short_inputs(5, 0));
    run.stop_after(stop);
    run.initialize();
    run.train();
    r.resume.mode = Resume::Mode::newest_if_any;
    r.micro_batch_size = 4;
  }
  std::vector<int64_t> steps;
  for (const MetricsRow& row : read_metrics(fs::path(r.out_dir) / "logs/csv/version_0/metrics.csv"))
    steps.push_back(row.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4}));
}

TEST(TrainingRun, TellsOfAllItsParts) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.eval_interval = 1;
  r.save_interval = 1;
  RunSummary first;
  {
    TrainingRun run(r, Task::pretrain, short_inputs(8, 4), {"capstan pretrain", "0.1.0 (abc)"});
    run.stop_after(2);
    run.initialize();
    run.train();
    first = run.summary();
  }
  ASSERT_GT(first.eval_seconds, 0);
  ASSERT_GT(first.save_seconds, 0);
  EXPECT_FALSE(first.resumed_after);
  r.resume.mode = Resume::Mode::newest_if_any;
  TrainingRun run(r, Task::pretrain, short_inputs(8, 4));
  run.initialize();
  const RunSummary before = run.summary();
  EXPECT_EQ(before.eval_seconds, first.eval_seconds);
  EXPECT_GT(before.save_seconds, 0) << "of the checkpoints before the last";
  EXPECT_LT(before.started, first.ended) << "when the first part did";
  EXPECT_EQ(before.resumed_after, 2);
  EXPECT_GE(before.resumed, first.ended);
  run.train();
  run.finish();
  EXPECT_GT(run.summary().eval_seconds, first.eval_seconds);
  EXPECT_GT(run.summary().save_seconds, before.save_seconds);
  EXPECT_EQ(first.program, "0.1.0 (abc)");
  EXPECT_FALSE(first.processor.empty());
  EXPECT_GE(first.threads, 1);
}

TEST(TrainingRun, AFinishedRunHasNothingLeftToDo) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  {
    TrainingRun run(r, Task::pretrain, short_inputs(5, 0));
    run.initialize();
    run.train();
    run.finish();
  }
  r.resume.mode = Resume::Mode::newest;
  {
    TrainingRun again(r, Task::pretrain, short_inputs(5, 0));
    again.initialize();
    EXPECT_TRUE(again.complete());
  }
  r.max_steps = 5;
  TrainingRun longer(r, Task::pretrain, short_inputs(5, 0));
  EXPECT_NE(message_of(Fault::usage, [&] { longer.initialize(); }).find("no optimizer state"),
            std::string::npos);
}

TEST(TrainingRun, RefusesToGoOnWithAnotherRunsState) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.save_interval = 2;
  {
    TrainingRun run(r, Task::pretrain, short_inputs(8, 0));
    run.initialize();
    run.stop_after(2);
    run.train();
  }
  r.resume.mode = Resume::Mode::newest;
  const auto refusal = [&](const Recipe& other, int64_t train) {
    TrainingRun run(other, Task::pretrain, short_inputs(train, 0));
    return message_of(Fault::usage, [&] { run.initialize(); });
  };
  EXPECT_NE(refusal(r, 9).find("a training set of 8, but this run has 9"), std::string::npos);
  Recipe seed = r, batch = r;
  seed.seed = 7;
  EXPECT_NE(refusal(seed, 8).find("seed 42, but this run has 7"), std::string::npos);
  batch.global_batch_size = 2;
  EXPECT_NE(refusal(batch, 8).find("a position in the data"), std::string::npos);
  Recipe none = r;
  none.out_dir = folder / "elsewhere";
  TrainingRun run(none, Task::pretrain, short_inputs(8, 0));
  EXPECT_NE(message_of(Fault::file, [&] { run.initialize(); }).find("no complete checkpoint"),
            std::string::npos);
}

TEST(TrainingRun, StartingAnewKeepsTheEarlierRunsCheckpoints) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  for (int i = 0; i < 3; ++i) {
    TrainingRun run(r, Task::pretrain, short_inputs(5, 0));
    run.initialize();
    run.train();
    run.finish();
  }
  for (const char* name : {"final", "previous-1/final", "previous-2/final"})
    EXPECT_NO_THROW(verify_checkpoint(fs::path(r.out_dir) / name)) << name;
}

TEST(TrainingRun, KeepsTheNewestCheckpoints) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.max_steps = 9;
  r.save_interval = 2;
  r.keep_last = 2;
  TrainingRun run(r, Task::pretrain, short_inputs(8, 0));
  run.initialize();
  run.train();
  run.finish();
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(r.out_dir))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"step-00000006", "step-00000008", "final", "logs",
                                          "loss.svg", "report.html"}));
}

TEST(TrainingRun, ValidatesTheFirstMicroBatchesOnlyWhenTold) {
  const Quiet quiet;
  const TempFolder folder;
  const auto loss = [&](int64_t iterations, int64_t held_out) {
    Recipe r = short_recipe(folder);
    r.eval_max_iters = iterations;
    TrainingRun run(r, Task::pretrain, short_inputs(4, held_out));
    run.initialize();
    return run.validate();
  };
  EXPECT_EQ(loss(2, 9), loss(100, 4));  // two micro-batches of two samples
  EXPECT_EQ(loss(4, 9), loss(100, 8));
  EXPECT_NE(loss(2, 9), loss(100, 9));
  EXPECT_EQ(loss(INT64_MAX, 9), loss(100, 9));
}

TEST(TrainingRun, TakesAnyBatchSizeWithoutOverflow) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.global_batch_size = r.micro_batch_size.size = INT64_MAX;
  r.eval_max_iters = INT64_MAX;
  r.max_steps = 1;
  TrainingRun run(r, Task::pretrain, short_inputs(5, 2));
  run.initialize();
  EXPECT_NO_THROW(run.train());
}

TEST(TrainingRun, StopsWhenItsTimeIsUp) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.max_steps = 1'000'000'000;
  r.max_time = 0.05;
  TrainingRun run(r, Task::pretrain, short_inputs(5, 0));
  run.initialize();
  run.train();
  EXPECT_GT(run.steps(), 0);
  EXPECT_LT(run.steps(), 1'000'000'000);
  EXPECT_EQ(run.interrupted(), 0);
  run.finish();
  EXPECT_NO_THROW(verify_checkpoint(run.saved()));
}

TEST(TrainingRun, WithoutValidationDataThereIsNoValidation) {
  const Quiet quiet;
  const TempFolder folder;
  TrainingRun run(short_recipe(folder), Task::pretrain, short_inputs(4, 0));
  run.initialize();
  run.train();
  EXPECT_FALSE(run.validate());
  EXPECT_EQ(run.report().find("Val Loss"), std::string::npos);
}

TEST(TrainingRun, KnowsBeforeTheTrainingThatItCannotSave) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  folder.write("taken", "precious");
  r.out_dir = folder / "taken";
  TrainingRun run(r, Task::pretrain, short_inputs(4, 0));
  EXPECT_NE(message_of(Fault::file, [&] { run.verify(); }).find("taken"), std::string::npos);
  EXPECT_EQ(read_text(folder / "taken"), "precious");
}

TEST(TrainingRun, KnowsBeforeTheTrainingThatTheWeightsAreDamaged) {
  const Quiet quiet;
  const TempFolder folder;
  Recipe r = short_recipe(folder);
  r.precision = Precision::f32_true;
  TrainingRun run(r, Task::pretrain, short_inputs(4, 2));
  run.initialize();
  const float nan = NAN;
  run.queue().upload(run.trainer().params().weight(0).reshape({31 * 16}).rows(0, 1), &nan);
  EXPECT_NE(message_of(Fault::file, [&] { run.verify(); }).find("the loss before the first step"),
            std::string::npos);
}

TEST(RunLength, TheShortestLimitCounts) {
  Recipe r;
  r.global_batch_size = 4;
  r.micro_batch_size = 2;
  const auto steps = [&] { return RunLength(r, 13, 130).steps(); };
  r.epochs = 3;
  EXPECT_EQ(steps(), 12) << "4 steps an epoch, of which the last has one sample";
  r.max_steps = 5;
  EXPECT_EQ(steps(), 5);
  r.max_tokens = 65;
  EXPECT_EQ(steps(), 2) << "32.5 tokens a step";
  r.max_tokens = 66;
  EXPECT_EQ(steps(), 3);
}

TEST(RunLength, CountsSamplesAndMicroBatches) {
  Recipe r;
  r.global_batch_size = 4;
  r.micro_batch_size = 2;
  r.epochs = 3;
  const RunLength length(r, 13, 130);
  EXPECT_EQ(length.iterations(1), 2);
  EXPECT_EQ(length.iterations(4), 7);
  EXPECT_EQ(length.iterations(5), 9);
  EXPECT_EQ(length.samples_in(4), 13);
  EXPECT_EQ(length.samples_in(6), 21);
  EXPECT_EQ(length.epoch_after(3), 1);
  EXPECT_EQ(length.epoch_after(4), 2);
}

TEST(RunLength, TheWarmUpIsStepsOrAPart) {
  Recipe r;
  r.max_steps = 40;
  r.lr_warmup_steps = 7;
  EXPECT_EQ(RunLength(r, 13, 130).warmup_steps(), 7);
  r.lr_warmup_fraction = 0.25;
  EXPECT_EQ(RunLength(r, 13, 130).warmup_steps(), 10);
}

}  // namespace
}  // namespace capstan::test
