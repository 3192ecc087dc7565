// Adapters against PEFT: see tools/golden/README.md for how the files are made.

#include "golden_case.h"
#include "model/decoder.h"
#include "model/merge_adapters.h"

namespace capstan::test {
namespace {

using nlohmann::json;

// Where B begins as zeros, A's first gradients are tiny and its updates their ratio to AdamW's
// epsilon; the generator finds 2e-5 for torch's own f32.
constexpr double kFinalTolerance = 5e-5;

LoraOptions options_of(const json& config) {
  const auto targets = config.at("target_modules").get<std::vector<std::string>>();
  const auto has = [&](const char* name) {
    return std::find(targets.begin(), targets.end(), name) != targets.end();
  };
  return {.r = config.at("r"),
          .alpha = config.at("lora_alpha"),
          .dropout = config.at("lora_dropout"),
          .rslora = config.at("use_rslora"),
          .query = has("q_proj"),
          .key = has("k_proj"),
          .value = has("v_proj"),
          .projection = has("o_proj"),
          .mlp = has("gate_proj"),
          .head = has("lm_head")};
}

class LoraGolden : public GoldenCase {
 protected:
  LoraGolden() : GoldenCase("golden_lora") {}

  LoraOptions lora = options_of(json::parse(std::ifstream(dir / "adapter_config.json")));
  SafetensorsFile initial{dir / "adapter_model.safetensors"};
  SafetensorsFile base{model_dir / "model.safetensors"};

  // The base and the adapters, from F32 files to stored types of any kind. Every adapter of the
  // file is one of ours.
  void load(Engine& e, const SafetensorsFile& adapters, const std::string& prefix = "") const {
    size_t loaded = 0, expected = 0;
    for (int i = 0; i < e.params.count(); ++i) {
      const Param& p = e.params.spec().params[static_cast<size_t>(i)];
      for (const Part& part : p.parts) {
        const auto v = p.adapter ? stored<float>(adapters, prefix + part.name)
                                 : stored<float>(base, part.name);
        const Tensor to = e.params.stored(i).rows(part.first_row, part.rows);
        ASSERT_EQ(static_cast<int64_t>(v.size()), to.numel()) << part.name;
        put(e.q, to, v);
        loaded += p.adapter ? 1 : 0;
      }
    }
    for (const StoredTensor& t : adapters.header().tensors) expected += t.name.starts_with(prefix);
    EXPECT_EQ(loaded, expected);
    e.params.refresh_weights(e.q);
  }

  void expect_named(const std::map<std::string, Values>& found, const std::string& prefix,
                    double most) const {
    EXPECT_GT(found.size(), 3U);
    for (const auto& [name, v] : found)
      EXPECT_LT(error(v, floats(prefix + name)), most) << prefix << name;
  }
};

TEST_P(LoraGolden, LossAndEveryGradientUnderEveryPolicy) {
  for (const auto policy : {Recompute::none, Recompute::selective, Recompute::block}) {
    SCOPED_TRACE(name_of(policy));
    Engine e(device, config, Precision::f32_true, policy, lora);
    load(e, initial);
    train_expecting_the_loss(e, tolerance);
    expect_named(e.by_name(true), "grad.", tolerance);
  }
}

TEST_P(LoraGolden, TwentyStepsOfAdamWLeaveTheBaseAsItIs) {
  Engine e(device, config, Precision::f32_true, Recompute::none, lora);
  load(e, initial);
  Optimizer optimizer(e.q, e.params, adamw());
  take_steps_expecting_losses_and_norms(e, optimizer);
  expect_named(e.by_name(false), "final.", kFinalTolerance / kGoldenTolerance * tolerance);
  for (int i = 0; i < e.params.count(); ++i)
    if (const Param& p = e.params.spec().params[static_cast<size_t>(i)]; !p.adapter)
      for (const Part& part : p.parts) {
        const auto v = stored<float>(base, part.name);
        const Tensor now = e.params.weight(i).rows(part.first_row, part.rows);
        EXPECT_EQ(values_of(e.q, now), Values(v.begin(), v.end())) << part.name;
        EXPECT_FALSE(e.params.grad(i));
        for (const SavedTensor& state : optimizer.state())
          EXPECT_FALSE(state.name.starts_with(part.name));
      }
}

// The logits of the trained adapters: beside the weights, folded into them, and token by token.
TEST_P(LoraGolden, LogitsBesideMergedAndDecoding) {
  Engine e(device, config, Precision::f32_true, Recompute::none, lora);
  load(e, golden, "final.");
  PlainBatch b = batch();
  const auto T = static_cast<int64_t>(b.ids.size());
  const Buffer logits = e.arena.make(Category::data, DType::f32, {T, config.vocab}, "logits");
  e.model.logits(e.q, b.on(e.q, config.sliding_window), logits);
  EXPECT_LT(error(values_of(e.q, logits), floats("final_logits")), tolerance);

  const int64_t first_document = b.starts[1];
  Decoder decoder(e.q, e.model, first_document, first_document);
  for (int64_t t = 0; t < first_document; ++t) {
    const auto last = decoder.feed(e.q, {&b.ids[static_cast<size_t>(t)], 1});
    EXPECT_LT(error(Values(last.begin(), last.end()), values_of(e.q, logits->rows(t, 1))),
              tolerance);
  }

  if (config.tied && lora.head) {
    EXPECT_THROW(merge_adapters(e.q, e.params), Error);
    return;
  }
  merge_adapters(e.q, e.params);
  e.model.logits(e.q, b.on(e.q, config.sliding_window), logits);
  EXPECT_LT(error(values_of(e.q, logits), floats("final_logits")), tolerance);
}

TEST_P(LoraGolden, EvaluationGivesTheSameLoss) {
  Engine e(device, config, Precision::f32_true, Recompute::none, lora);
  load(e, initial);
  evaluate_expecting_the_loss(e);
}

// Rounding of bf16 in some twenty stages, as for whole models; a rounded base makes a few percent.
TEST_P(LoraGolden, Bf16StaysNear) {
  for (const auto precision : {Precision::bf16_true, Precision::bf16_mixed}) {
    SCOPED_TRACE(name_of(precision));
    Engine e(device, config, precision, Recompute::none, lora);
    load(e, initial);
    train_expecting_the_loss(e, 0.01);
    expect_named(e.by_name(true), "grad.", 0.08);
  }
}

INSTANTIATE_TEST_SUITE_P(Peft, LoraGolden,
                         testing::Combine(testing::ValuesIn(golden_cases("golden_lora")),
                                          testing::ValuesIn(devices_present())),
                         golden_name);

}  // namespace
}  // namespace capstan::test
