// Adapters against PEFT: see tools/golden/README.md for how the files are made.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine.h"
#include "model/adapter.h"
#include "model/decoder.h"
#include "optim/optimizer.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-5, kGpuTolerance = 2e-5;  // as for whole models
// Where B begins as zeros, A's first gradients are tiny and its updates their ratio to AdamW's
// epsilon; the generator finds 2e-5 for torch's own f32.
constexpr double kFinalTolerance = 5e-5;

fs::path tests_folder() {
  return fs::path(CAPSTAN_SOURCE_DIR) / "tests";
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(tests_folder() / "golden_lora"))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

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

class LoraGolden : public testing::TestWithParam<std::tuple<std::string, Device>> {
 protected:
  fs::path dir = tests_folder() / "golden_lora" / std::get<0>(GetParam());
  Device device = std::get<1>(GetParam());
  double tolerance = device == Device::cuda ? kGpuTolerance : kTolerance;
  json settings = json::parse(std::ifstream(dir / "golden.json"));
  fs::path base_dir = tests_folder() / "golden" / settings.at("base").get<std::string>();
  ModelConfig config = read_config(base_dir);
  LoraOptions lora = options_of(json::parse(std::ifstream(dir / "adapter_config.json")));
  SafetensorsFile golden{dir / "golden.safetensors"};
  SafetensorsFile initial{dir / "adapter_model.safetensors"};
  SafetensorsFile base{base_dir / "model.safetensors"};
  SafetensorsFile data{base_dir / "golden.safetensors"};

  template <class T>
  static std::vector<T> raw(const SafetensorsFile& file, const std::string& name) {
    const StoredTensor* t = file.header().find(name);
    require(t != nullptr, Fault::file, "no tensor {}", name);
    std::vector<T> v(static_cast<size_t>(t->nbytes()) / sizeof(T));
    std::memcpy(v.data(), file.bytes(*t).data(), v.size() * sizeof(T));
    return v;
  }
  Values floats(const std::string& name) const {
    const auto v = raw<float>(golden, name);
    return {v.begin(), v.end()};
  }
  PlainBatch batch() const {
    return {raw<int32_t>(data, "ids"), raw<int32_t>(data, "labels"), raw<int32_t>(data, "starts")};
  }
  PlainBatch step_batch(size_t step) const {
    const auto starts = raw<int32_t>(data, "step_starts");
    const auto width = static_cast<int64_t>(starts.back());
    const auto cut = [&](const char* name) {
      const auto all = raw<int32_t>(data, name);
      const auto first = all.begin() + static_cast<int64_t>(step) * width;
      return std::vector<int32_t>(first, first + width);
    };
    return {cut("step_ids"), cut("step_labels"), starts};
  }

  // The base and the adapters, from F32 files to stored types of any kind. Every adapter of the
  // file is one of ours.
  void load(Engine& e, const SafetensorsFile& adapters, const std::string& prefix = "") const {
    size_t loaded = 0, expected = 0;
    for (int i = 0; i < e.params.count(); ++i) {
      const Param& p = e.params.spec().params[static_cast<size_t>(i)];
      for (const Part& part : p.parts) {
        const auto v =
            p.adapter ? raw<float>(adapters, prefix + part.name) : raw<float>(base, part.name);
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
    PlainBatch b = batch();
    const float scale = 1.0f / static_cast<float>(b.targets());
    e.model.train(e.q, b.on(e.q, config.sliding_window), scale, e.loss);
    EXPECT_NEAR(e.loss_sum() * scale, floats("loss")[0], tolerance * floats("loss")[0]);
    expect_named(e.by_name(true), "grad.", tolerance);
  }
}

TEST_P(LoraGolden, TwentyStepsOfAdamWLeaveTheBaseAsItIs) {
  Engine e(device, config, Precision::f32_true, Recompute::none, lora);
  load(e, initial);
  Optimizer optimizer(e.q, e.params,
                      {.beta1 = settings["beta1"],
                       .beta2 = settings["beta2"],
                       .eps = settings["eps"],
                       .weight_decay = settings["weight_decay"]});
  GradientClip clip(e.q, settings["max_norm"]);
  const Values losses = floats("losses"), norms = floats("grad_norms");
  for (size_t step = 0; step < 20; ++step) {
    PlainBatch b = step_batch(step);
    const float scale = 1.0f / static_cast<float>(b.targets());
    e.params.zero_grads(e.q);
    e.clear_loss();
    e.model.train(e.q, b.on(e.q, config.sliding_window), scale, e.loss);
    clip.measure(e.q, e.params);
    optimizer.update(e.q, settings["lr"], clip.scale());
    EXPECT_NEAR(e.loss_sum() * scale, losses[step], tolerance * losses[step]) << "step " << step;
    EXPECT_NEAR(clip.norm(e.q), norms[step], tolerance * norms[step]) << "step " << step;
  }
  expect_named(e.by_name(false), "final.", kFinalTolerance / kTolerance * tolerance);
  for (int i = 0; i < e.params.count(); ++i)
    if (const Param& p = e.params.spec().params[static_cast<size_t>(i)]; !p.adapter)
      for (const Part& part : p.parts) {
        const auto v = raw<float>(base, part.name);
        const Tensor now = e.params.weight(i).rows(part.first_row, part.rows);
        EXPECT_EQ(values_of(e.q, now), Values(v.begin(), v.end())) << part.name;
        EXPECT_FALSE(e.params.grad(i));
        for (const Optimizer::State& state : optimizer.state())
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
  PlainBatch b = batch();
  e.model.evaluate(e.q, b.on(e.q, config.sliding_window), e.loss);
  EXPECT_NEAR(e.loss_sum() / static_cast<double>(b.targets()), floats("loss")[0],
              tolerance * floats("loss")[0]);
}

// Rounding of bf16 in some twenty stages, as for whole models; a rounded base makes a few percent.
TEST_P(LoraGolden, Bf16StaysNear) {
  for (const auto precision : {Precision::bf16_true, Precision::bf16_mixed}) {
    SCOPED_TRACE(name_of(precision));
    Engine e(device, config, precision, Recompute::none, lora);
    load(e, initial);
    PlainBatch b = batch();
    const float scale = 1.0f / static_cast<float>(b.targets());
    e.model.train(e.q, b.on(e.q, config.sliding_window), scale, e.loss);
    EXPECT_NEAR(e.loss_sum() * scale, floats("loss")[0], 0.01 * floats("loss")[0]);
    expect_named(e.by_name(true), "grad.", 0.08);
  }
}

INSTANTIATE_TEST_SUITE_P(Peft, LoraGolden,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::ValuesIn(devices_present())),
                         [](const auto& suite) {
                           return fmt::format("{}_{}", std::get<0>(suite.param),
                                              name_of(std::get<1>(suite.param)));
                         });

}  // namespace
}  // namespace capstan::test
