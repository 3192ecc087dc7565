// A step of 512 GPUs that others have published; docs/planner.md has the table of all.

#include <gtest/gtest.h>

#include <chrono>

#include "plan/data_sheet.h"
#include "plan/predict.h"

namespace capstan::test {
namespace {

// Megatron-LM, arXiv 2205.05198: 1T on 512 A100, 71.49 s. Nothing is fitted to it; the bound is
// what a prediction by data sheet should keep to.
TEST(PublishedSteps, OfATrillionParametersArePredictedInSeconds) {
  const GpuModel gpu = gpu_catalogue().named("a100-80-sxm");
  Recipe r;
  r.tensor_parallel = 8;
  r.pipeline_parallel = r.num_nodes = 64;
  r.micro_batch_size = 1;
  r.global_batch_size = 512;
  TrainOptions o;
  o.device = Device::cuda;
  o.model.vocab = 51200;
  o.model.hidden = 25600;
  o.model.intermediate = 68288;  // 8 / 3 of that: as many parameters as GPT's two matrices
  o.model.layers = 128;
  o.model.heads = o.model.kv_heads = 160;
  o.model.head_dim = 160;
  o.model.tied = true;
  o.precision = Precision::bf16_mixed;
  o.recompute = Recompute::selective;
  o.limits = {.tokens = 2048, .documents = 1, .longest = 2048};
  const auto start = std::chrono::steady_clock::now();
  set_ranks(o, r, {0, 512}, data_sheet_network(gpu, 8), 64);
  const int64_t bytes = Trainer::plan(o).device.total_bytes;
  const StepEstimate step = estimate_largest(o, cost_model(data_sheet(gpu), o), 512);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(bytes, gpu.bytes);
  EXPECT_NEAR(step.seconds / 71.49, 1, 0.2);
  EXPECT_DOUBLE_EQ(step.tokens, 512 * 2048);
  EXPECT_GT(step.waiting, 63.0 / (512 + 63)) << "the bubble of equal stages";
  EXPECT_LT(step.waiting, 0.3);
  EXPECT_LT(took.count(), 10);
}

}  // namespace
}  // namespace capstan::test
