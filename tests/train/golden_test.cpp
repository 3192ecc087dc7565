// Every number against transformers: see tools/golden/README.md for how the files are made.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine.h"
#include "model/decoder.h"
#include "ops/elementwise.h"
#include "optim/optimizer.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

// f32 rounding through two layers forward and back; the generator finds 2e-6 for torch's own f32.
constexpr double kTolerance = 1e-5;
// On a GPU products are f32 as well, without TF32. Exponentials are the hardware's: 2 + |x| units
// in the last place, which for weights that matter, down to exp(-10), is another 1e-6.
constexpr double kGpuTolerance = 2e-5;

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden"))
    if (fs::exists(entry.path() / "config.json")) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Golden : public testing::TestWithParam<std::tuple<std::string, Device>> {
 protected:
  fs::path dir = fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden" / std::get<0>(GetParam());
  Device device = std::get<1>(GetParam());
  double tolerance = device == Device::cuda ? kGpuTolerance : kTolerance;
  ModelConfig config = read_config(dir);
  SafetensorsFile file{dir / "golden.safetensors"};
  nlohmann::json settings = nlohmann::json::parse(std::ifstream(dir / "golden.json"));

  template <class T>
  std::vector<T> raw(const std::string& name) const {
    const StoredTensor* t = file.header().find(name);
    require(t != nullptr, Fault::file, "{}: no tensor {}", dir.string(), name);
    std::vector<T> v(static_cast<size_t>(t->nbytes()) / sizeof(T));
    std::memcpy(v.data(), file.bytes(*t).data(), v.size() * sizeof(T));
    return v;
  }
  Values floats(const std::string& name) const {
    const auto v = raw<float>(name);
    return {v.begin(), v.end()};
  }
  PlainBatch batch() const {
    return {raw<int32_t>("ids"), raw<int32_t>("labels"), raw<int32_t>("starts")};
  }
  // Batch `step` of the twenty.
  PlainBatch step_batch(size_t step) const {
    const auto starts = raw<int32_t>("step_starts");
    const auto width = static_cast<size_t>(starts.back());
    const auto cut = [&](const char* name) {
      const auto all = raw<int32_t>(name);
      return std::vector<int32_t>(all.begin() + static_cast<int64_t>(step * width),
                                  all.begin() + static_cast<int64_t>((step + 1) * width));
    };
    return {cut("step_ids"), cut("step_labels"), starts};
  }
  void expect_named(const std::map<std::string, Values>& found, const std::string& prefix,
                    double most) const {
    size_t compared = 0;
    for (const auto& [name, v] : found) {
      // Softmax ignores what is the same for all keys, so a key bias has the small rest of large
      // terms that cancel as its gradient, with the rounding errors of the large ones.
      const double slack = name.ends_with("k_proj.bias") ? 2 : 1;
      EXPECT_LT(error(v, floats(prefix + name)), slack * most) << prefix << name;
      ++compared;
    }
    size_t expected = 0;
    for (const StoredTensor& t : file.header().tensors) expected += t.name.starts_with(prefix);
    EXPECT_EQ(compared, expected);
  }
};

TEST_P(Golden, Logits) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  PlainBatch b = batch();
  const Buffer logits = e.arena.make(Category::data, DType::f32,
                                     {static_cast<int64_t>(b.ids.size()), config.vocab}, "logits");
  e.model.logits(e.q, b.on(e.q, config.sliding_window), logits);
  EXPECT_LT(error(values_of(e.q, logits), floats("logits")), tolerance);
}

TEST_P(Golden, LossAndEveryGradientUnderEveryPolicy) {
  for (const auto policy : {Recompute::none, Recompute::selective, Recompute::block}) {
    SCOPED_TRACE(name_of(policy));
    Engine e(device, config, Precision::f32_true, policy);
    load_parameters(e.q, e.params, dir);
    PlainBatch b = batch();
    const float scale = 1.0f / static_cast<float>(b.targets());
    e.model.train(e.q, b.on(e.q, config.sliding_window), scale, e.loss);
    EXPECT_NEAR(e.loss_sum() * scale, floats("loss")[0], tolerance * floats("loss")[0]);
    expect_named(e.by_name(true), "grad.", tolerance);
  }
}

TEST_P(Golden, EvaluationGivesTheSameLoss) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  PlainBatch b = batch();
  e.model.evaluate(e.q, b.on(e.q, config.sliding_window), e.loss);
  EXPECT_NEAR(e.loss_sum() / static_cast<double>(b.targets()), floats("loss")[0],
              tolerance * floats("loss")[0]);
}

TEST_P(Golden, TwentyStepsOfAdamW) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
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
  expect_named(e.by_name(false), "final.", tolerance);
}

TEST_P(Golden, GreedyDecodingWithTheCache) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  const auto prompt = raw<int32_t>("decode_prompt"), expected = raw<int32_t>("decode_ids");
  Decoder decoder(e.q, e.model, static_cast<int64_t>(expected.size()), 4);
  GenerateOptions options;
  options.max_new_tokens = 16;
  options.sampling.temperature = 0;
  std::vector<int32_t> found = prompt;
  for (const int32_t t : generate(e.q, decoder, prompt, options)) found.push_back(t);
  EXPECT_EQ(found, expected);
}

// Feeding token by token, in pieces and all at once gives the logits of a plain forward pass.
TEST_P(Golden, TheCacheChangesNothing) {
  Engine e(device, config);
  load_parameters(e.q, e.params, dir);
  const auto ids = raw<int32_t>("decode_ids");
  const auto T = static_cast<int64_t>(ids.size());
  PlainBatch b(ids, ids, {0, static_cast<int32_t>(T)});
  const Buffer logits = e.arena.make(Category::data, DType::f32, {T, config.vocab}, "logits");
  e.model.logits(e.q, b.on(e.q, config.sliding_window), logits);
  for (const int64_t piece : {int64_t{1}, int64_t{3}, T}) {
    Decoder decoder(e.q, e.model, T, T);
    for (int64_t at = 0; at < T; at += piece) {
      const int64_t n = std::min(piece, T - at);
      const auto last = decoder.feed(
          e.q, std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(n)));
      EXPECT_LT(
          error(Values(last.begin(), last.end()), values_of(e.q, logits->rows(at + n - 1, 1))),
          tolerance)
          << "pieces of " << piece << ", token " << at + n - 1;
    }
  }
}

// bf16 has 8 bits of mantissa: a relative error of 2^-9 in each of some twenty stages of a weight's
// gradient, that adds up like a random walk.
TEST_P(Golden, Bf16StaysNear) {
  for (const auto precision : {Precision::bf16_true, Precision::bf16_mixed}) {
    SCOPED_TRACE(name_of(precision));
    Engine e(device, config, precision);
    load_parameters(e.q, e.params, dir);
    PlainBatch b = batch();
    const float scale = 1.0f / static_cast<float>(b.targets());
    e.model.train(e.q, b.on(e.q, config.sliding_window), scale, e.loss);
    EXPECT_NEAR(e.loss_sum() * scale, floats("loss")[0], 0.01 * floats("loss")[0]);
    expect_named(e.by_name(true), "grad.", 0.08);
  }
}

INSTANTIATE_TEST_SUITE_P(Transformers, Golden,
                         testing::Combine(testing::ValuesIn(cases()),
                                          testing::ValuesIn(devices_present())),
                         [](const auto& suite) {
                           return fmt::format("{}_{}", std::get<0>(suite.param),
                                              name_of(std::get<1>(suite.param)));
                         });

}  // namespace
}  // namespace capstan::test
