// The contracts of docs/architecture.md that hold for a whole model and its trainer.

#include "planned_run.h"

namespace capstan::test {
namespace {

CAPSTAN_ON_EVERY_DEVICE(Equivalence);
CAPSTAN_ON_EVERY_DEVICE(Determinism);

struct LossAndGradients {
  double loss = 0;
  std::map<std::string, Values> gradients;
};

LossAndGradients compute(Device device, const ModelConfig& config, const Dataset& data,
                         int64_t micro_batch, bool packed, const Recomputation& policy,
                         Precision precision, const std::optional<LoraOptions>& lora = {}) {
  Engine e(device, config, precision, policy, lora);
  e.params.initialize(e.q, 7);
  draw_zero_factors(e.q, e.params);
  MicroBatches micro(data, micro_batch,
                     {.max_seq_length = 32, .vocab = config.vocab, .packed = packed});
  std::vector<int64_t> ids(static_cast<size_t>(data.size()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  micro.start(ids);
  const float scale = 1.0f / static_cast<float>(micro.targets());
  while (const HostBatch* host = micro.next()) {
    PlainBatch b(host->ids, host->labels, host->starts);
    EXPECT_EQ(b.positions, host->positions);
    b.ordinals = host->ordinals;
    train_on(e.model, e.q, b.on(e.q, config.sliding_window), scale, e.loss, StepKey{.seed = 3});
  }
  return {e.loss_sum() * scale, e.by_name(true)};
}

TEST_P(Equivalence, MicroBatchesPaddingAndRecomputationChangeNothing) {
  for (const ModelConfig& config : {grouped_config(), all_features()}) {
    const Dataset data = ragged(8, config.vocab);
    const LossAndGradients expected =
        compute(GetParam(), config, data, 8, true, Recompute::none, Precision::f32_true);
    for (const int64_t micro : {8, 4, 1})
      for (const bool packed : {true, false})
        for (const auto& policy : kPolicies) {
          SCOPED_TRACE(fmt::format("micro-batches of {}, {}, {}", micro,
                                   packed ? "packed" : "padded", name_of(policy)));
          const auto found =
              compute(GetParam(), config, data, micro, packed, policy, Precision::f32_true);
          EXPECT_NEAR(found.loss, expected.loss, 1e-5 * expected.loss);
          for (const auto& [name, v] : expected.gradients)
            EXPECT_LT(error(found.gradients.at(name), v), 1e-5) << name;
        }
  }
}

// A token's masks follow it into any micro-batch. With rank 16 and these widths, a GPU drops bf16
// values inside of its products.
TEST_P(Equivalence, MicroBatchesAndPaddingDropTheSame) {
  ModelConfig wide = grouped_config();
  wide.hidden = wide.intermediate = 128;
  wide.head_dim = 32;
  LoraOptions lora = every_map(0.1);
  lora.r = 16;
  struct Way {
    ModelConfig config;
    Precision precision;
    double allowed;
  };
  for (const Way& way :
       {Way{grouped_config(), Precision::f32_true, 1e-5}, Way{wide, Precision::f32_true, 1e-5},
        Way{wide, Precision::bf16_mixed, 0.02}}) {
    const ModelConfig& config = way.config;
    const Precision precision = way.precision;
    const double allowed = way.allowed;
    const Dataset data = ragged(8, config.vocab);
    const auto with = [&](int64_t micro, bool packed, double dropout) {
      lora.dropout = dropout;
      return compute(GetParam(), config, data, micro, packed, Recompute::none, precision, lora);
    };
    const LossAndGradients expected = with(8, true, 0.1);
    EXPECT_GT(std::abs(with(8, true, 0).loss - expected.loss), 1e-4) << "nothing was dropped";
    for (const int64_t micro : {8, 4, 2, 1})
      for (const bool packed : {true, false}) {
        SCOPED_TRACE(fmt::format("micro-batches of {}, {}, {}", micro, packed ? "packed" : "padded",
                                 name_of(precision)));
        const auto found = with(micro, packed, 0.1);
        EXPECT_NEAR(found.loss, expected.loss, allowed * expected.loss);
        for (const auto& [name, v] : expected.gradients)
          EXPECT_LT(error(found.gradients.at(name), v), allowed) << name;
      }
  }
}

// Through a trainer, which counts the tokens of its steps: the same weights after five.
TEST_P(Equivalence, StepsOfAnyMicroBatchDropTheSame) {
  const ModelConfig config = grouped_config();
  const Dataset data = ragged(16, config.vocab);
  const auto losses = [&](int64_t micro, double dropout) {
    auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, micro,
                         micro == 8);
    o.lora = every_map(dropout);
    o.seed = 4;
    return run(o, data, 8, micro, 5).losses;
  };
  const std::vector<double> expected = losses(8, 0.1);
  EXPECT_GT(std::abs(losses(8, 0)[4] - expected[4]), 1e-4) << "nothing was dropped";
  for (const int64_t micro : {4, 3, 2, 1}) {
    const std::vector<double> found = losses(micro, 0.1);
    for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * expected[i]) << micro;
  }
}

// In bf16 the same values are recomputed bit for bit.
TEST_P(Equivalence, RecomputationIsBitwiseInEveryPrecision) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(5, config.vocab);
  for (const auto precision : kPrecisions) {
    const auto expected = compute(GetParam(), config, data, 5, true, Recompute::none, precision);
    for (const auto& policy : kPolicies) {
      const auto found = compute(GetParam(), config, data, 5, true, policy, precision);
      EXPECT_EQ(found.loss, expected.loss);
      EXPECT_EQ(found.gradients, expected.gradients) << name_of(precision) << name_of(policy);
    }
  }
}

// Steps of one, of a few and of many micro-batches, whose sizes differ; with and without
// evaluations between, for which what was copied ahead has to give way.
TEST_P(Determinism, BatchesThatAreCopiedAheadChangeNothing) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(16, config.vocab);
  for (const int64_t micro : {8, 3, 1}) {
    const auto o = options_for(GetParam(), config, data, Precision::f32_true, Recompute::none,
                               micro, micro == 8);
    const RunResult expected = run(o, data, 8, micro, 7, {.ahead = false});
    EXPECT_EQ(run(o, data, 8, micro, 7), expected) << micro;
    EXPECT_EQ(run(o, data, 8, micro, 7, {.op_by_op = true}), expected) << micro;
    EXPECT_EQ(run(o, data, 8, micro, 7, {.evaluate_every = 2}), expected) << micro;
  }
}

// Where a device replays the work of a micro-batch of a size that it knows, that changes no bit;
// the documents of a batch stand in another order each time.
TEST_P(Determinism, ReplayedStepsEqualStepsOpByOp) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(4, config.vocab);
  for (const bool single : {true, false})
    for (const auto precision : {Precision::f32_true, Precision::bf16_true}) {
      const auto o =
          options_for(GetParam(), config, data, precision, Recompute::none, single ? 4 : 1, single);
      const int64_t micro = single ? 4 : 1;
      EXPECT_EQ(run(o, data, 4, micro, 8), run(o, data, 4, micro, 8, {.op_by_op = true}))
          << name_of(precision);
    }
}

TEST_P(Determinism, TwoRunsAreBitwiseEqual) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(12, config.vocab);
  for (const auto precision : kPrecisions) {
    const auto o = options_for(GetParam(), config, data, precision, Recompute::selective, 2, false);
    EXPECT_EQ(run(o, data, 6, 2, 4), run(o, data, 6, 2, 4)) << name_of(precision);
  }
}

TEST_P(Determinism, GradientsThatLiveInTheStepChangeNothing) {
  const ModelConfig config = all_features();
  const Dataset data = ragged(12, config.vocab);
  const auto kept =
      options_for(GetParam(), config, data, Precision::f32_true, Recompute::none, 6, false);
  auto in_step = kept;
  in_step.single_micro_batch = true;
  EXPECT_EQ(run(kept, data, 6, 6, 4), run(in_step, data, 6, 6, 4));
  EXPECT_LT(Trainer::plan(in_step).device.total_bytes, Trainer::plan(kept).device.total_bytes);
}

}  // namespace
}  // namespace capstan::test
