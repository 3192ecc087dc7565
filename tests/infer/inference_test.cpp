// Models that are used and not trained, on every device: see infer/inference.h.

#include "infer/inference.h"

#include "checkpoint/save_model.h"
#include "checkpoint/training_checkpoint.h"
#include "plan/fit.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include "train/engine.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

ModelConfig small_config() {
  ModelConfig c = aligned_config();
  c.max_positions = 64;
  c.init_std = 0.2;
  c.qkv_bias = c.o_bias = true;
  return c;
}

const std::vector<int32_t> kPrompt = {3, 1, 4, 1, 5, 9, 2, 6};

// A drawn model, and an adapter beside it that does something.
class InferenceOn : public OnEveryDevice {
 protected:
  InferenceOn() {
    {
      Engine e(small_config());
      e.params.initialize(e.q, 7);
      save_model(e.q, e.params, base);
    }
    LoraOptions lora{.r = 4};
    lora.key = lora.projection = lora.mlp = lora.head = true;
    Engine e(small_config(), Precision::f32_true, Recompute::none, 64, lora);
    load_parameters(e.q, e.params, base);
    e.params.initialize_adapters(e.q, 3);
    draw_zero_factors(e.q, e.params);
    Optimizer optimizer(e.q, e.params, {});
    SaveRequest request;
    request.dir = adapter;
    request.base_model = base;
    CheckpointSaver(e.q, e.params, optimizer, nullptr).save(request);
  }
  static InferenceOptions options(Device device, Precision precision) {
    InferenceOptions o;
    o.device = device;
    o.precision = precision;
    o.positions = 32;
    return o;
  }
  // Greedily, and the logits after the prompt.
  static std::pair<std::vector<int32_t>, Values> answer(const ModelFiles& files,
                                                        const InferenceOptions& o) {
    LoadedModel loaded(files, o);
    GenerateOptions g;
    g.max_new_tokens = 12;
    g.sampling.temperature = 0;
    const auto tokens = generate(loaded.queue(), loaded.model().decoder(), kPrompt, g);
    loaded.model().decoder().clear();
    const auto last = loaded.model().decoder().feed(loaded.queue(), kPrompt);
    return {tokens, {last.begin(), last.end()}};
  }

  TempFolder folder;
  fs::path base = folder.path() / "base", adapter = folder.path() / "adapter";
};
INSTANTIATE_TEST_SUITE_P(Models, InferenceOn, testing::ValuesIn(devices_present()), device_name);

TEST_P(InferenceOn, AnswersAsTheCpuDoesWholeAdaptedAndQuantized) {
  for (const fs::path& model : {base, adapter})
    for (const char* quantize : {"none", "bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.int8"}) {
      SCOPED_TRACE(fmt::format("{} {}", model.filename().string(), quantize));
      const ModelFiles files = find_model(model.string(), "", quantize);
      const auto expected = answer(files, options(Device::cpu, Precision::f32_true));
      const auto found = answer(files, options(GetParam(), Precision::f32_true));
      EXPECT_EQ(found.first, expected.first);
      EXPECT_LT(error(found.second, expected.second), 2e-5);
      // 8 bits of mantissa in some twenty stages.
      const auto narrow = answer(files, options(GetParam(), Precision::bf16_true));
      EXPECT_LT(error(narrow.second, expected.second), 0.05);
    }
}

TEST_P(InferenceOn, EvaluatesToTheLossThatTheCpuFinds) {
  Dataset data;
  for (int s = 0; s < 5; ++s) {
    std::vector<int32_t> tokens;
    for (int t = 0; t < 7 + 3 * s; ++t) tokens.push_back((5 * s + 11 * t) % 67);
    data.add(tokens, s);
  }
  const BatchOptions batches{.max_seq_length = 32, .vocab = 67};
  const std::vector<int64_t> all = {0, 1, 2, 3, 4};
  const auto loss = [&](Device device) {
    InferenceOptions o = options(device, Precision::f32_true);
    o.limits = limits_of(data, 2, batches);
    LoadedModel loaded(find_model(adapter.string()), o);
    MicroBatches micro(data, 2, batches);
    micro.start(all);
    return loaded.model().evaluate(micro).mean();
  };
  EXPECT_NEAR(loss(GetParam()), loss(Device::cpu), 2e-5 * loss(Device::cpu));
}

TEST_P(InferenceOn, ThePlanIsForItsDevice) {
  InferenceOptions o = options(GetParam(), Precision::bf16_true);
  o.model = small_config();
  const MemoryPlan plan = Inference::plan(o);
  Arena arena(plan, o.device);
  Queue q(o.device, arena);
  Inference model(q, o);
  model.params().initialize(q, 1);
  for (const size_t n : {size_t{8}, size_t{1}, size_t{3}})
    model.decoder().feed(q, std::span(kPrompt).first(n));
  EXPECT_EQ(arena.allocated_bytes(), plan.total_bytes);
  EXPECT_EQ(at(arena.highest(), Category::weights), at(plan.highest, Category::weights));
}

// A GPU's products have a workspace of 32 MiB, which a plan for the CPU has no place for.
TEST(InferencePlan, ForAGpuCanBeMadeWithoutOne) {
  InferenceOptions o;
  o.model = small_config();
  o.positions = 32;
  const int64_t here = Inference::plan(o).total_bytes;
  o.device = Device::cuda;
  EXPECT_GE(Inference::plan(o).total_bytes, here + (int64_t{30} << 20));
  o.lora = LoraOptions{};
  o.limits = {.tokens = 8, .documents = 1, .longest = 8};
  o.logits = o.merge = true;
  for (const Quantize kind : {Quantize::none, Quantize::nf4_dq, Quantize::int8}) {
    o.quantize = kind;
    EXPECT_GT(at(Inference::plan(o).highest, Category::workspace), int64_t{32} << 20);
  }
}

TEST(InferencePlan, WhatDoesNotFitIsRefusedByTheSpaceAndWithWhatHelps) {
  const int64_t GiB = int64_t{1} << 30;
  InferenceOptions o;
  const auto said = [&] {
    return message_of(Fault::does_not_fit, [&] { require_fit(o, 26 * GiB, 24 * GiB); });
  };
  EXPECT_NO_THROW(require_fit(o, 24 * GiB, 24 * GiB));
  EXPECT_EQ(said(),
            "does not fit: needs 26.0 GiB, 24.0 GiB free. --precision bf16-true and a shorter text "
            "or batch need less");
  o.device = Device::cuda;
  const std::string gpu = said();
  EXPECT_EQ(gpu.find("does not fit: needs 26.0 GiB on the GPU, 24.0 GiB free. These need less: "
                     "--precision bf16-true · --quantize bnb.nf4 · a shorter text or batch; "
                     "--accelerator cpu uses this machine's memory, "),
            0u)
      << gpu;
  o.precision = Precision::bf16_true;
  o.quantize = Quantize::nf4;
  EXPECT_NE(said().find("less: a shorter text or batch;"), std::string::npos) << said();
}

TEST(InferencePlan, PrecisionIsBf16OnAGpuAndTheCheckpointsOnACpu) {
  ModelConfig c = small_config();
  for (const DType stored : {DType::f32, DType::f16, DType::bf16}) {
    c.dtype = stored;
    EXPECT_EQ(inference_precision("", c, Device::cuda), Precision::bf16_true);
    EXPECT_EQ(inference_precision("", c, Device::cpu),
              stored == DType::bf16 ? Precision::bf16_true : Precision::f32_true);
    for (const Device device : {Device::cpu, Device::cuda})
      EXPECT_EQ(inference_precision("32-true", c, device), Precision::f32_true);
  }
}

}  // namespace
}  // namespace capstan::test
