#include "plan/predict.h"

#include <gtest/gtest.h>

#include "model/small_models.h"

namespace capstan::test {
namespace {

TrainOptions options() {
  TrainOptions o;
  o.model = aligned_config();
  o.model.vocab = 300;
  o.limits = {.tokens = 80, .documents = 2, .longest = 40};
  return o;
}

// A machine on which the ops of one kind take time, at 1 GFLOP/s or 1 GB/s, and others none.
CostModel only(OpKind slow) {
  CostModel m;
  for (std::optional<Rates>& rates : m.kinds) rates = Rates{};
  m.rates(slow) = slow == OpKind::elementwise || slow == OpKind::optimizer
                      ? Rates{.bytes_per_second = 1e9}
                      : Rates{.flops_per_second = 1e9};
  return m;
}

// Weights of the linear maps of all blocks.
double block_weights(const ModelConfig& c) {
  return static_cast<double>(c.layers * c.hidden *
                             (2 * c.q_width() + 2 * c.kv_width() + 3 * c.intermediate));
}

TEST(Estimates, AreWhatTheArithmeticSays) {
  const TrainOptions o = options();
  const ModelConfig& c = o.model;
  const auto seconds = [&](OpKind kind, int64_t micro_batches) {
    return estimate_largest(o, only(kind), micro_batches).seconds;
  };
  for (const int64_t n : {1, 2, 5}) {
    const double tokens = 80.0 * static_cast<double>(n);
    EXPECT_NEAR(seconds(OpKind::product, n), 6 * tokens * block_weights(c) / 1e9, 1e-9);
    EXPECT_NEAR(seconds(OpKind::head, n),
                6 * tokens * static_cast<double>(c.vocab * c.hidden) / 1e9, 1e-9);
    const double pairs = static_cast<double>(n) * 2 * (40 * 41 / 2) * 4;  // two documents, heads
    EXPECT_NEAR(seconds(OpKind::attention, n), static_cast<double>(c.layers) * pairs * 4 * 16 / 1e9,
                1e-9);
    EXPECT_NEAR(seconds(OpKind::attention_backward, n),
                static_cast<double>(c.layers) * pairs * 10 * 16 / 1e9, 1e-9);
    EXPECT_DOUBLE_EQ(estimate_largest(o, {}, n).tokens, tokens);
  }
  // One update, however many micro-batches: weight, gradient and moments, and the gradients' norm.
  EXPECT_DOUBLE_EQ(seconds(OpKind::optimizer, 5), seconds(OpKind::optimizer, 1));
  const auto parameters = static_cast<double>(make_spec(c).parameter_count());
  EXPECT_NEAR(seconds(OpKind::optimizer, 1), 32 * parameters / 1e9, 0.01 * 32 * parameters / 1e9);
}

// Ranks that compute alike: a step is as long as one rank's, and what of the communication nothing
// hides. It has the tokens of all.
TEST(Estimates, OfSeveralRanksHaveTheirCommunication) {
  TrainOptions o = options();
  const StepEstimate one = estimate_largest(o, only(OpKind::product), 3);
  o.ranks = {0, 4};
  const auto bytes = 4.0 * static_cast<double>(make_spec(o.model).parameter_count());
  for (const Sharding& sharding : {kDdp, kZero1, kZero3}) {
    o.sharding = sharding;
    o.network = {};
    const StepEstimate free = estimate_largest(o, only(OpKind::product), 3);
    EXPECT_NEAR(free.seconds, one.seconds, 1e-9) << strategy_name(sharding);
    EXPECT_EQ(free.tokens, 4 * one.tokens);
    // A network so slow that it is all that counts: gradients are sent, and weights, of which all
    // but a quarter goes to others. zero3 gathers weights in both passes, and sums gradients after
    // each micro-batch.
    const double times = sharding.weights == Hold::shard ? 3 * 3 : 2;
    const double rate = bytes * 0.75 / one.seconds * 1e-3;
    o.network.bytes_per_second = rate;
    const double slow = estimate_largest(o, only(OpKind::product), 3).seconds;
    EXPECT_NEAR(slow, times * 0.75 * bytes / rate, 0.2 * slow) << strategy_name(sharding);
  }
}

TEST(Estimates, RecomputationTakesTime) {
  TrainOptions o = options();
  const double kept = estimate_largest(o, only(OpKind::product), 1).seconds;
  o.recompute = Recompute::block;
  const double again = estimate_largest(o, only(OpKind::product), 1).seconds;
  EXPECT_GT(again, 1.2 * kept);
  EXPECT_LT(again, 1.34 * kept);
}

TEST(Estimates, OfAnyBatchThatFitsAreSmallerThanThatOfTheLargest) {
  const TrainOptions o = options();
  Dataset data;
  for (const int64_t n : {11, 41, 6}) data.add(std::vector<int32_t>(static_cast<size_t>(n), 1), 0);
  MicroBatches micro(data, 2, {.max_seq_length = 40, .vocab = 300});
  const std::vector<int64_t> ids = {0, 1, 2};
  const StepEstimate some = estimate_step(o, only(OpKind::product), micro, ids);
  EXPECT_DOUBLE_EQ(some.tokens, 10 + 40 + 5);
  EXPECT_NEAR(some.seconds, 6 * 55 * block_weights(o.model) / 1e9, 1e-9);
}

// An op that the table of kinds does not know would be charged at no rate that was measured.
TEST(OpKinds, AreKnownOfEveryOpOfATrainingStep) {
  std::vector<TrainOptions> all(7, options());
  all[1].precision = Precision::bf16_mixed;
  all[2].lora = LoraOptions();
  all[2].lora->dropout = 0.1;
  all[2].lora->head = true;
  all[3] = all[2];
  all[3].quantize = Quantize::nf4;
  all[4].optimizer.kind = OptimizerOptions::Kind::adamw8bit;
  all[4].model.qk_norm = true;
  all[4].model.architecture = "Qwen3ForCausalLM";
  all[5].optimizer.kind = OptimizerOptions::Kind::sgd;
  all[6].precision = Precision::fp8_mixed;
  for (TrainOptions& o : all)
    for (const Device device : {Device::cpu, Device::cuda}) {
      o.device = device;
      o.sample_positions = 8;
      Arena arena, host;
      Queue q(Device::sim, arena, host, {.device = device});
      Trainer trainer(q, o);
      trainer.rehearse();
      EXPECT_GT(q.seconds(), 0);
    }
}

}  // namespace
}  // namespace capstan::test
