// Training in fp8-mixed.

#include "data/batch/micro_batches.h"
#include "data/dataset/sampler.h"
#include "engine.h"
#include "infer/inference.h"
#include "support/message_of.h"
#include "train/trainer.h"

namespace capstan::test {
namespace {

class Fp8Training : public OnEveryFp8Device {};
INSTANTIATE_TEST_SUITE_P(Ops, Fp8Training, testing::ValuesIn(devices_present()), device_name);

ModelConfig config_for_fp8() {
  ModelConfig c = aligned_config();
  c.qkv_bias = true;
  c.architecture = "Qwen2ForCausalLM";
  return c;
}

// Each token says what comes next; sequences of several lengths.
Dataset counting(int64_t samples, int64_t vocab) {
  Dataset data;
  for (int64_t s = 0; s < samples; ++s) {
    std::vector<int32_t> tokens(static_cast<size_t>(12 + s % 9));
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<int32_t>((s * 7 + static_cast<int64_t>(i) * 3) % vocab);
    data.add(tokens, 0);
  }
  return data;
}

struct Trained {
  std::vector<double> losses;  // of each step, then of an evaluation, then tokens that were made
  std::vector<Values> weights;
  MemoryPlan plan;
  ByCategory highest{};
  int64_t allocated = 0;
  bool operator==(const Trained& other) const {
    return losses == other.losses && weights == other.weights;
  }
};

struct Setting {
  Precision precision = Precision::fp8_mixed;
  Recomputation recompute = {};
  bool single = false;
  int steps = 4;
  bool op_by_op = false;
  ModelConfig config = config_for_fp8();
};

Trained train(Device device, const Setting& s) {
  const Dataset data = counting(16, s.config.vocab);
  const BatchOptions batches{.max_seq_length = 32, .vocab = s.config.vocab};
  const int64_t micro_batch = s.single ? 8 : 4;
  TrainOptions o;
  o.device = device;
  o.model = s.config;
  o.precision = s.precision;
  o.recompute = s.recompute;
  o.limits = limits_of(data, micro_batch, batches);
  o.single_micro_batch = s.single;
  o.schedule = {.lr = 1e-2, .decay = Schedule::Decay::constant};
  o.max_norm = 1;
  o.sample_positions = 24;
  Trained result;
  const RunPlan plan = Trainer::plan(o);
  result.plan = plan.device;
  Arena arena(plan.device, device), host(plan.host, Arena::Pinned{});
  Queue q(device, arena, host);
  q.time_each_op(s.op_by_op);
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  Sampler sampler(data.size(), 8, 11);
  MicroBatches micro(data, micro_batch, batches);
  for (int step = 0; step < s.steps; ++step) {
    micro.start(sampler.ids(step));
    result.losses.push_back(trainer.step(micro, step).loss);
  }
  micro.start(sampler.ids(0));
  result.losses.push_back(trainer.evaluate(micro).mean());
  GenerateOptions generation;
  generation.max_new_tokens = 8;
  for (const int32_t t : generate(q, *trainer.decoder(), std::vector<int32_t>{1, 4}, generation))
    result.losses.push_back(t);
  for (int i = 0; i < trainer.params().count(); ++i)
    result.weights.push_back(values_of(q, trainer.params().stored(i)));
  result.highest = arena.highest();
  result.allocated = arena.allocated_bytes();
  return result;
}

TEST_P(Fp8Training, LearnsAsBf16MixedDoes) {
  constexpr int kSteps = 60;
  const auto fp8 = train(GetParam(), {.steps = kSteps});
  const auto bf16 = train(GetParam(), {.precision = Precision::bf16_mixed, .steps = kSteps});
  EXPECT_NE(fp8.losses[0], bf16.losses[0]) << "nothing was computed in FP8";
  EXPECT_NEAR(fp8.losses[0], bf16.losses[0], 0.01 * bf16.losses[0]);
  EXPECT_LT(fp8.losses[kSteps], 0.2 * fp8.losses[0]);
  // A mean over the way: near the end single steps of both jump about.
  double fp8_mean = 0, bf16_mean = 0;
  for (size_t i = 0; i < kSteps; ++i) {
    fp8_mean += fp8.losses[i] / kSteps;
    bf16_mean += bf16.losses[i] / kSteps;
  }
  EXPECT_NEAR(fp8_mean, bf16_mean, 0.05 * bf16_mean);
}

TEST_P(Fp8Training, ThePlanIsWhatIsAllocatedAndTwoRunsAreBitwiseEqual) {
  for (const bool single : {true, false}) {
    const Setting s{.single = single};
    const Trained first = train(GetParam(), s);
    EXPECT_EQ(first.allocated, first.plan.total_bytes);
    EXPECT_EQ(first.highest, first.plan.highest);
    EXPECT_EQ(first, train(GetParam(), s)) << single;
    Setting slow = s;
    slow.op_by_op = true;
    EXPECT_EQ(first, train(GetParam(), slow)) << "replayed steps are those op by op";
    for (const Recomputation& policy : kPolicies) {
      Setting other = s;
      other.recompute = policy;
      const Trained again = train(GetParam(), other);
      EXPECT_EQ(first, again) << name_of(policy);
      EXPECT_EQ(again.highest, again.plan.highest) << name_of(policy);
    }
  }
}

// No map of this model can be multiplied in FP8.
TEST_P(Fp8Training, OddShapesAreTrainedAsInBf16Mixed) {
  ModelConfig odd = config_for_fp8();
  odd.hidden = 40;
  odd.intermediate = 52;
  odd.head_dim = 10;
  EXPECT_EQ(train(GetParam(), {.config = odd}),
            train(GetParam(), {.precision = Precision::bf16_mixed, .config = odd}));
}

// The head is none of them, and text is made with the weights as they are.
TEST_P(Fp8Training, TheMapsOfTheBlocksAreMultipliedInFp8) {
  const ModelConfig config = config_for_fp8();
  Engine e(GetParam(), config, Precision::fp8_mixed);
  e.params.initialize(e.q, 7);
  PlainBatch batch({1, 2, 3, 4, 5}, {2, 3, 4, 5, 6}, {0, 5});
  const Batch b = batch.on(e.q, 0);
  const auto calls = [&](std::string_view op) {
    int64_t found = 0;
    for (const OpTotal& t : e.q.totals())
      if (t.op != nullptr && op == t.op) found = t.calls;
    return found;
  };
  train_on(e.model, e.q, b, 1, e.loss);
  EXPECT_EQ(calls("linear_fp8"), 4 * config.layers);
  EXPECT_EQ(calls("linear_fp8_backward"), 4 * config.layers);
  EXPECT_EQ(calls("linear"), 0);
  e.q.reset_totals();
  e.model.evaluate(e.q, b, e.loss);
  EXPECT_EQ(calls("linear_fp8"), 4 * config.layers);
  e.q.reset_totals();
  Decoder decoder(e.q, e.model, 16, 16);
  GenerateOptions generation;
  generation.max_new_tokens = 2;
  generate(e.q, decoder, std::vector<int32_t>{1, 4, 5}, generation);
  EXPECT_EQ(calls("linear_fp8"), 0);
  EXPECT_GT(calls("linear"), 0);
}

TEST_P(Fp8Training, StopsBeforeANanReachesTheWeights) {
  const ModelConfig config = config_for_fp8();
  const Dataset data = counting(4, config.vocab);
  const BatchOptions batches{.max_seq_length = 32, .vocab = config.vocab};
  TrainOptions o;
  o.device = GetParam();
  o.model = config;
  o.precision = Precision::fp8_mixed;
  o.limits = limits_of(data, 4, batches);
  o.schedule = {.lr = 1e-2, .decay = Schedule::Decay::constant};
  const RunPlan plan = Trainer::plan(o);
  Arena arena(plan.device, GetParam()), host(plan.host, Arena::Pinned{});
  Queue q(GetParam(), arena, host);
  Trainer trainer(q, o);
  trainer.params().initialize(q, 3);
  const int qkv = trainer.params().spec().blocks[1].qkv;
  const bf16 nan(NAN);
  q.upload(trainer.params().weight(qkv).reshape({trainer.params().weight(qkv).numel()}).rows(5, 1),
           &nan);
  const Values before = values_of(q, trainer.params().stored(qkv));
  MicroBatches micro(data, 4, batches);
  const std::vector<int64_t> samples = {0, 1, 2, 3};
  micro.start(samples);
  const std::string message = message_of(Fault::usage, [&] { trainer.step(micro, 0); });
  EXPECT_NE(message.find("the loss is nan"), std::string::npos) << message;
  EXPECT_EQ(values_of(q, trainer.params().stored(qkv)), before);
}

TEST(Fp8Options, AdaptersAndQuantizedWeightsAreRefused) {
  for (const Quantize quantize : {Quantize::none, Quantize::nf4}) {
    TrainOptions o;
    o.model = config_for_fp8();
    o.precision = Precision::fp8_mixed;
    o.lora = LoraOptions{};
    o.quantize = quantize;
    o.limits = {.tokens = 8, .documents = 1, .longest = 8};
    const std::string message = message_of(Fault::usage, [&] { Trainer::plan(o); });
    EXPECT_NE(message.find("precision: fp8-mixed requires training all weights"),
              std::string::npos);
    EXPECT_NE(message.find("use bf16-mixed"), std::string::npos) << message;
  }
}

TEST(Fp8Options, InferenceIsRefused) {
  const std::string message = message_of(
      Fault::usage, [] { inference_precision("fp8-mixed", config_for_fp8(), Device::cpu); });
  EXPECT_NE(message.find("fp8-mixed is for training; use bf16-true, 16-true or 32-true"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace capstan::test
