#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "engine.h"
#include "optim/optimizer.h"

// What the comparisons with other programs share: folders of their numbers, made as
// tools/golden/README.md tells.
namespace capstan::test {

// f32 rounding through two layers forward and back; the generator finds 2e-6 for torch's own f32.
inline constexpr double kGoldenTolerance = 1e-5;
// On a GPU products are f32 as well, without TF32. Exponentials are the hardware's: 2 + |x| units
// in the last place, which for weights that matter, down to exp(-10), is another 1e-6.
inline constexpr double kGoldenGpuTolerance = 2e-5;

// `set` is a folder of tests/: "golden" has models, "golden_lora" has adapters of them.
inline std::filesystem::path golden_folder(const std::string& set) {
  return std::filesystem::path(CAPSTAN_SOURCE_DIR) / "tests" / set;
}

inline std::vector<std::string> golden_cases(const std::string& set) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden_folder(set)))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using GoldenParam = std::tuple<std::string, Device>;

inline std::string golden_name(const testing::TestParamInfo<GoldenParam>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param), name_of(std::get<1>(info.param)));
}

// All values of a tensor that a file must have.
template <class T>
std::vector<T> stored(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* t = file.header().find(name);
  require(t != nullptr, Fault::file, "no tensor {}", name);
  std::vector<T> v(static_cast<size_t>(t->nbytes()) / sizeof(T));
  file.read_to(reinterpret_cast<std::byte*>(v.data()), *t, 0, t->numel());
  return v;
}

// One case of a set, on one device.
class GoldenCase : public testing::TestWithParam<GoldenParam> {
 protected:
  explicit GoldenCase(const std::string& set) : dir(golden_folder(set) / std::get<0>(GetParam())) {}

  Values floats(const std::string& name) const {
    const auto v = stored<float>(golden, name);
    return {v.begin(), v.end()};
  }
  PlainBatch batch() const {
    return {stored<int32_t>(data, "ids"), stored<int32_t>(data, "labels"),
            stored<int32_t>(data, "starts")};
  }
  // Batch `step` of the twenty.
  PlainBatch step_batch(size_t step) const {
    const auto starts = stored<int32_t>(data, "step_starts");
    const auto width = static_cast<int64_t>(starts.back());
    const auto cut = [&](const char* name) {
      const auto all = stored<int32_t>(data, name);
      const auto first = all.begin() + static_cast<int64_t>(step) * width;
      return std::vector<int32_t>(first, first + width);
    };
    return {cut("step_ids"), cut("step_labels"), starts};
  }

  // Adds the gradients of the batch's mean loss, which must be the golden one but for `most` of it.
  void train_expecting_the_loss(Engine& e, double most) const {
    PlainBatch b = batch();
    const float scale = 1.0f / static_cast<float>(b.targets());
    train_on(e.model, e.q, b.on(e.q, config.sliding_window), scale, e.loss);
    EXPECT_NEAR(e.loss_sum() * scale, floats("loss")[0], most * floats("loss")[0]);
  }
  void evaluate_expecting_the_loss(Engine& e) const {
    PlainBatch b = batch();
    e.model.evaluate(e.q, b.on(e.q, config.sliding_window), e.loss);
    EXPECT_NEAR(e.loss_sum() / static_cast<double>(b.targets()), floats("loss")[0],
                tolerance * floats("loss")[0]);
  }
  OptimizerOptions adamw() const {
    return {.beta1 = settings.at("beta1"),
            .beta2 = settings.at("beta2"),
            .eps = settings.at("eps"),
            .weight_decay = settings.at("weight_decay")};
  }
  // Twenty steps with clipping; the loss and the gradients' norm of each must be the golden ones.
  void take_steps_expecting_losses_and_norms(Engine& e, Optimizer& optimizer) const {
    GradientClip clip(e.q, settings.at("max_norm"), e.params);
    const Values losses = floats("losses"), norms = floats("grad_norms");
    for (size_t step = 0; step < 20; ++step) {
      PlainBatch b = step_batch(step);
      const float scale = 1.0f / static_cast<float>(b.targets());
      e.params.begin_step(e.q);
      e.clear_loss();
      train_on(e.model, e.q, b.on(e.q, config.sliding_window), scale, e.loss);
      clip.measure(e.q, e.params);
      optimizer.update(e.q, settings.at("lr"), clip.scale());
      EXPECT_NEAR(e.loss_sum() * scale, losses[step], tolerance * losses[step]) << "step " << step;
      EXPECT_NEAR(clip.norm(e.q), norms[step], tolerance * norms[step]) << "step " << step;
    }
  }

  const std::filesystem::path dir;
  const Device device = std::get<1>(GetParam());
  const double tolerance = device == Device::cuda ? kGoldenGpuTolerance : kGoldenTolerance;
  const nlohmann::json settings = nlohmann::json::parse(std::ifstream(dir / "golden.json"));
  // Of the model, which for adapters is the case that they name as their base.
  const std::filesystem::path model_dir =
      settings.contains("base") ? golden_folder("golden") / settings.at("base").get<std::string>()
                                : dir;
  const ModelConfig config = read_config(model_dir);
  const SafetensorsFile golden{dir / "golden.safetensors"};      // what is expected
  const SafetensorsFile data{model_dir / "golden.safetensors"};  // the batches, of the model's case
};

}  // namespace capstan::test
