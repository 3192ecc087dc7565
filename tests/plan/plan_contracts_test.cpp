// What is planned is what is allocated, and what a plan promises.

#include <chrono>
#include <filesystem>

#include "train/planned_run.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(PlanOn);

// Every kind of model that there are golden values for, and ours with several at once.
std::vector<ModelConfig> every_config() {
  std::vector<ModelConfig> configs = {grouped_config(), all_features()};
  const std::filesystem::path golden = std::filesystem::path(CAPSTAN_SOURCE_DIR) / "tests/golden";
  for (const auto& entry : std::filesystem::directory_iterator(golden))
    if (std::filesystem::exists(entry.path() / "config.json"))
      configs.push_back(read_config(entry.path()));
  return configs;
}

TEST_P(PlanOn, IsWhatIsAllocatedForEveryConfigPrecisionAndPolicy) {
  EXPECT_GE(every_config().size(), 8U);
  for (const ModelConfig& config : every_config()) {
    const Dataset data = ragged(6, config.vocab);
    for (const auto precision : kPrecisions)
      for (const auto& policy : kPolicies)
        for (const bool single : {true, false}) {
          SCOPED_TRACE(fmt::format("{} {} {}", name_of(precision), name_of(policy), single));
          const int64_t micro = single ? 6 : 2;
          // Every request of the run is matched with the plan's as it is made: one that is larger,
          // of another category, or in another place throws.
          const auto o = options_for(GetParam(), config, data, precision, policy, micro, single);
          const RunResult r = run(o, data, 6, micro, 2);
          r.expect_as_planned();
        }
  }
}

// Some tensors with moments in 8 bits, some without; and a copy of all to save from.
TEST_P(PlanOn, IsWhatIsAllocatedWithMomentsIn8Bits) {
  ModelConfig config = all_features();
  config.hidden = 72;
  config.intermediate = 70;
  config.head_dim = 18;
  const Dataset data = ragged(6, config.vocab);
  for (const auto precision : kPrecisions)
    for (const bool single : {true, false}) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(precision), single));
      const int64_t micro = single ? 6 : 2;
      auto o =
          options_for(GetParam(), config, data, precision, Recompute::selective, micro, single);
      const int64_t usual = at(Trainer::plan(o).device.highest, Category::optimizer);
      o.optimizer.kind = OptimizerOptions::Kind::adamw8bit;
      o.staging = true;
      const RunResult r = run(o, data, 6, micro, 2);
      r.expect_as_planned();
      EXPECT_LT(at(r.plan.device.highest, Category::optimizer), usual);
      EXPECT_EQ(run(o, data, 6, micro, 2), r);
    }
}

TEST(Plan, RecomputationAndBf16NeedLess) {
  // Large enough that the panels of bf16's products do not outweigh what bf16 saves.
  ModelConfig config = grouped_config();
  config.layers = 12;
  config.hidden = 240;
  config.intermediate = 512;
  const Dataset data = ragged(20, config.vocab);
  const auto total = [&](Precision p, const Recomputation& r) {
    return Trainer::plan(options_for(Device::cpu, config, data, p, r, 20, false))
        .device.total_bytes;
  };
  const auto f32 = Precision::f32_true;
  const int layers = static_cast<int>(config.layers);
  // To recompute the last block, too, makes no difference: it would be made again at once.
  for (int rung = 0; rung < 2 * layers - 1; ++rung)
    EXPECT_GT(total(f32, Recomputation::at_rung(rung, layers)),
              total(f32, Recomputation::at_rung(rung + 1, layers)))
        << rung;
  EXPECT_EQ(total(f32, {Recompute::block, layers - 1}), total(f32, Recompute::block));
  EXPECT_GT(total(f32, Recompute::none), total(Precision::bf16_true, Recompute::none));
}

TEST(Plan, Llama70BOnOneImaginaryDeviceInUnderASecond) {
  TrainOptions o;
  o.model.vocab = 32000;
  o.model.hidden = 8192;
  o.model.intermediate = 28672;
  o.model.layers = 80;
  o.model.heads = 64;
  o.model.kv_heads = 8;
  o.model.head_dim = 128;
  o.precision = Precision::bf16_mixed;
  o.limits = {.tokens = 4 * 4096, .documents = 4, .longest = 4096};
  const auto start = std::chrono::steady_clock::now();
  const MemoryPlan plan = Trainer::plan(o).device;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.0);

  // The formulas of the literature: 18 bytes per parameter (f32 master and gradient, two moments,
  // bf16 copy) and, per token and layer in bf16, 12h + 4h kv/heads + 6f + 4 heads, to which the
  // two f32 norm scales are added.
  const int64_t parameters = make_spec(o.model).parameter_count();
  EXPECT_EQ(parameters, 68976648192);
  const int64_t states = at(plan.highest, Category::weights) +
                         at(plan.highest, Category::gradients) +
                         at(plan.highest, Category::optimizer);
  EXPECT_NEAR(static_cast<double>(states) / static_cast<double>(parameters), 18, 1e-4);
  const double per_layer = 12 * 8192 + 4 * 8192 * 8 / 64 + 6 * 28672 + 4 * 64 + 2 * 4;
  const double activations = static_cast<double>(at(plan.highest, Category::activations));
  EXPECT_NEAR(activations / (4.0 * 4096 * 80 * per_layer), 1, 0.03);
}

}  // namespace
}  // namespace capstan::test
