// What runs leave in the history.

#include <omp.h>

#include "base/files.h"
#include "base/log.h"
#include "comm/thread_group.h"
#include "machine/name.h"
#include "plan/history.h"
#include "short_run.h"
#include "support/variable.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

class RunHistory : public testing::Test {
 protected:
  RunHistory() : cache_("CAPSTAN_CACHE", (folder_ / "cache").c_str()) {}

  Recipe recipe(int64_t steps) const {
    Recipe r = short_recipe(folder_);
    r.accelerator = Accelerator::cpu;
    r.max_steps = steps;
    return r;
  }

  const Quiet quiet_;
  const TempFolder folder_;
  const Variable cache_;
};

void finish(TrainingRun& run) {
  run.initialize();
  run.verify();
  run.train();
  run.finish();
}

// Rates with which any CPU run can be predicted.
void calibrate() {
  Calibration c;
  c.device = Device::cpu;
  c.name = machine_name(c.device);
  c.date = "2026-08-05";
  c.seconds_per_call = 1e-3;
  c.bytes_per_second = 1e9;
  for (const char* type : {"f32", "bf16"}) c.types[type].rates.fill(1e9);
  write_calibration(calibration_path(c.name), c);
}

TEST_F(RunHistory, HasALineOfEachRun) {
  TrainingRun run(recipe(6), Task::pretrain, short_inputs(12, 3));
  finish(run);
  const auto history = read_history(history_path());
  ASSERT_EQ(history.size(), 1);
  const PlannedRun& line = history[0];
  EXPECT_EQ(line.device, machine_name(Device::cpu));
  EXPECT_EQ(line.model, "a small model");
  EXPECT_EQ(line.precision, run.summary().precision);
  EXPECT_EQ(line.mesh, "one rank");
  EXPECT_EQ(line.ranks, 1);
  EXPECT_EQ(line.steps, 6);
  EXPECT_EQ(line.date.size(), std::string_view("2026-08-05T12:34:56Z").size());
  EXPECT_EQ(line.predicted_bytes, run.plan().device.total_bytes);
  EXPECT_EQ(line.measured_bytes, line.predicted_bytes) << "what is planned is what is allocated";
  EXPECT_GT(line.measured_bytes, 0);
  EXPECT_EQ(line.calibration, "");
  EXPECT_EQ(line.predicted_step_seconds, 0);
  EXPECT_EQ(line.predicted_run_seconds, 0);
  EXPECT_EQ(line.measured_step_seconds, run.summary().step_seconds);
  EXPECT_EQ(line.measured_run_seconds, run.summary().train_seconds);
}

TEST_F(RunHistory, HasThePredictionWhereTheMachineWasMeasured) {
  calibrate();
  TrainingRun run(recipe(5), Task::pretrain, short_inputs(12, 3));
  finish(run);
  const auto history = read_history(history_path());
  ASSERT_EQ(history.size(), 1);
  EXPECT_EQ(history[0].calibration, machine_name(Device::cpu) + " of 2026-08-05");
  EXPECT_FALSE(history[0].from_data_sheet);
  EXPECT_GT(history[0].predicted_step_seconds, 0);
  EXPECT_EQ(history[0].predicted_step_seconds, run.summary().predicted_seconds);
  EXPECT_DOUBLE_EQ(history[0].predicted_run_seconds, 5 * history[0].predicted_step_seconds);
}

TEST_F(RunHistory, HasNoLineOfARunWithFewSteps) {
  TrainingRun run(recipe(4), Task::pretrain, short_inputs(12, 3));
  finish(run);
  EXPECT_FALSE(fs::exists(history_path()));
}

// Of a run in two parts each has a line, with its own steps.
TEST_F(RunHistory, HasALineOfAnInterruptedRun) {
  Recipe r = recipe(13);
  r.resume.mode = Resume::Mode::newest_if_any;
  for (const int64_t stop : {7, 13}) {
    TrainingRun run(r, Task::pretrain, short_inputs(12, 3));
    run.stop_after(stop);
    run.initialize();
    run.train();
    EXPECT_EQ(run.steps(), stop);
  }
  const auto history = read_history(history_path());
  ASSERT_EQ(history.size(), 2);
  EXPECT_EQ(history[0].steps, 7);
  EXPECT_EQ(history[1].steps, 6);
  for (const PlannedRun& line : history) {
    EXPECT_GT(line.measured_step_seconds, 0);
    EXPECT_GE(line.measured_run_seconds, 5 * line.measured_step_seconds);
  }
}

TEST_F(RunHistory, KnowsNoTimeOfARunThatTracedAStep) {
  Recipe r = recipe(6);
  r.log_trace = (folder_ / "trace.json").string();
  r.log_trace_step = 3;
  TrainingRun run(r, Task::pretrain, short_inputs(12, 3));
  finish(run);
  const auto history = read_history(history_path());
  ASSERT_EQ(history.size(), 1);
  EXPECT_EQ(history[0].measured_step_seconds, 0);
  EXPECT_EQ(history[0].measured_run_seconds, 0);
  EXPECT_GT(history[0].measured_bytes, 0);
}

TEST_F(RunHistory, HasOneLineOfSeveralRanks) {
  Recipe r = recipe(5);
  r.strategy = Strategy::zero3;
  const auto inputs = std::make_shared<const RunInputs>(short_inputs(12, 3));
  omp_set_num_threads(2);  // one for each rank
  run_as_threads(
      2,
      [&](Communicator group) {
        const log::Quiet quiet(group.rank() != 0);
        TrainingRun run(r, Task::pretrain, inputs, {}, group);
        finish(run);
      },
      std::chrono::seconds(60));
  const auto history = read_history(history_path());
  ASSERT_EQ(history.size(), 1);
  EXPECT_EQ(history[0].ranks, 2);
  EXPECT_EQ(history[0].mesh, "zero3");
  EXPECT_EQ(history[0].measured_bytes, history[0].predicted_bytes);
}

TEST_F(RunHistory, ThatCannotBeKeptStopsNoRun) {
  {
    const Variable cache("CAPSTAN_CACHE", nullptr), xdg("XDG_CACHE_HOME", nullptr),
        home("HOME", nullptr);
    TrainingRun run(recipe(5), Task::pretrain, short_inputs(12, 3));
    EXPECT_NO_THROW(finish(run));
  }
  fs::create_directories(history_path());  // a folder of the file's name
  Recipe r = recipe(5);
  r.out_dir = folder_ / "again";
  TrainingRun run(r, Task::pretrain, short_inputs(12, 3));
  EXPECT_NO_THROW(finish(run));
  EXPECT_TRUE(fs::exists(fs::path(r.out_dir) / "final"));
}

}  // namespace
}  // namespace capstan::test
