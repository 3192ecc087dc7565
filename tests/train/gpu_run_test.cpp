// What a run's report says of its GPU: see report/gpu_monitor.h.

#include <gtest/gtest.h>

#include "support/temp_folder.h"
#include "train/run.h"

namespace capstan {
namespace {

RunInputs some_inputs() {
  RunInputs in;
  in.tokenizer = std::make_shared<ByteTokenizer>();
  in.model.config.vocab = 31;
  in.model.config.hidden = 16;
  in.model.config.intermediate = 24;
  in.model.config.layers = 2;
  in.model.config.heads = in.model.config.kv_heads = 2;
  in.model.config.head_dim = 8;
  in.model.name = "a small model";
  for (int32_t s = 0; s < 8; ++s)
    in.data.train.add(std::vector<int32_t>(static_cast<size_t>(3 + s), s), 1);
  in.max_seq_length = 16;
  in.is_text = true;
  return in;
}

// The summary and the report of a short run.
std::pair<RunSummary, std::string> run_on(const char* accelerator, const TempFolder& folder) {
  Recipe r = defaults_of(Task::pretrain);
  r.accelerator = accelerator;
  r.out_dir = folder / "out";
  r.logger_name = "csv";
  r.max_tokens = std::nullopt;
  r.global_batch_size = 4;
  r.micro_batch_size = 2;
  r.max_steps = 3;
  r.lr_warmup_steps = 0;
  testing::internal::CaptureStderr();
  TrainingRun run(r, Task::pretrain, some_inputs());
  run.initialize();
  run.rehearse();
  run.train();
  run.finish();
  testing::internal::GetCapturedStderr();
  return {run.summary(), run.report()};
}

TEST(GpuReport, OnACpuSaysNothingOfAGpu) {
  const TempFolder folder;
  const auto [summary, report] = run_on("cpu", folder);
  EXPECT_FALSE(summary.gpu);
  EXPECT_EQ(report.find("CUDA context"), std::string::npos);
}

TEST(GpuReport, OnCudaShowsWhatTheCardCountsBesideThePlan) {
  if (!cuda_present()) GTEST_SKIP() << "no GPU here";
  if (const Nvml nvml; !nvml.present()) GTEST_SKIP() << nvml.why_not();
  const TempFolder folder;
  const auto [summary, report] = run_on("cuda", folder);
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
  for (const char* part : {"CUDA context", "planned", "allocated", "readings"})
    EXPECT_NE(report.find(part), std::string::npos) << report;
}

}  // namespace
}  // namespace capstan
