// What a run's report says of its GPU: see report/gpu_monitor.h.

#include <gtest/gtest.h>

#include "short_run.h"

namespace capstan::test {
namespace {

// The summary and the report of a short run.
std::pair<RunSummary, std::string> run_on(Accelerator accelerator, const TempFolder& folder) {
  Recipe r = short_recipe(folder);
  r.accelerator = accelerator;
  const Quiet quiet;
  TrainingRun run(r, Task::pretrain, short_inputs(8, 0));
  run.initialize();
  run.verify();
  run.train();
  run.finish();
  return {run.summary(), run.report()};
}

TEST(GpuReport, OnACpuSaysNothingOfAGpu) {
  const TempFolder folder;
  const auto [summary, report] = run_on(Accelerator::cpu, folder);
  EXPECT_FALSE(summary.gpu);
  EXPECT_EQ(report.find("CUDA context"), std::string::npos);
}

TEST(GpuReport, OnCudaShowsWhatTheCardCountsBesideThePlan) {
  if (!cuda_present()) GTEST_SKIP() << "no GPU here";
  if (const Nvml nvml; !nvml.present()) GTEST_SKIP() << nvml.why_not();
  const TempFolder folder;
  const auto [summary, report] = run_on(Accelerator::cuda, folder);
  ASSERT_TRUE(summary.gpu);
  const GpuUse& use = *summary.gpu;
  EXPECT_GT(use.card_bytes, summary.memory.measured_bytes);
  EXPECT_GE(use.peak_bytes, use.setup_bytes);
  EXPECT_GE(use.peak_bytes, use.context_bytes);
  if (use.by_process) {
    EXPECT_GE(use.setup_bytes, summary.memory.measured_bytes);
    EXPECT_GT(use.context_bytes, 0);
  }
  EXPECT_GE(use.readings, 1);
  EXPECT_GT(use.mean_mhz.value_or(1), 0);
  EXPECT_EQ(report.find(" MHz") != std::string::npos, use.mean_mhz.has_value()) << report;
  EXPECT_GE(use.joules.value_or(0), 0);
  EXPECT_EQ(report.find(" W, limit ") != std::string::npos, use.watts_limit.has_value()) << report;
  for (const char* part : {"CUDA context", "planned", "allocated", "reading"})
    EXPECT_NE(report.find(part), std::string::npos) << report;
}

}  // namespace
}  // namespace capstan::test
