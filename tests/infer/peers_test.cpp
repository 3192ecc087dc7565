// What Capstan writes, opened by the programs it is written for. Runs where CAPSTAN_PYTHON names a
// Python with transformers and peft.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "checkpoint/adapter.h"
#include "checkpoint/save_model.h"
#include "checkpoint/training_checkpoint.h"
#include "infer/inference.h"
#include "support/temp_folder.h"
#include "train/engine.h"

namespace capstan {
namespace {

ModelConfig small_model() {
  ModelConfig c;
  c.vocab = 67;
  c.hidden = 32;
  c.intermediate = 44;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.max_positions = 64;
  c.init_std = 0.3;
  c.bos_id = 1;
  c.eos_ids = {2};
  return c;
}

class Peers : public testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("CAPSTAN_PYTHON");
    if (python == nullptr) GTEST_SKIP() << "CAPSTAN_PYTHON is not set";
    python_ = python;
  }
  // Runs the peer and returns the logits of the last token.
  std::vector<float> logits(const std::string& arguments, std::vector<int32_t>& ids) const {
    const std::string command =
        fmt::format("{} {}/tools/check_peers.py {} > {} 2>&1", python_, CAPSTAN_SOURCE_DIR,
                    arguments, (folder / "log").string());
    EXPECT_EQ(std::system(command.c_str()), 0) << read_text(folder / "log");
    const SafetensorsFile file(folder / "seen" / "logits.safetensors");
    const StoredTensor* l = file.header().find("logits");
    const StoredTensor* i = file.header().find("ids");
    ids.resize(static_cast<size_t>(i->shape[1]));
    file.read_to(reinterpret_cast<std::byte*>(ids.data()), *i, 0, std::ssize(ids));
    std::vector<float> last(static_cast<size_t>(l->shape[2]));
    file.read_to(reinterpret_cast<std::byte*>(last.data()), *l, l->numel() - std::ssize(last),
                 std::ssize(last));
    return last;
  }
  static double error(std::span<const float> found, const std::vector<float>& expected) {
    double apart = 0, size = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      apart += std::pow(static_cast<double>(found[i]) - expected[i], 2);
      size += std::pow(static_cast<double>(expected[i]), 2);
    }
    return std::sqrt(apart / size);
  }
  static std::span<const float> ours(LoadedModel& loaded, const std::vector<int32_t>& ids) {
    return loaded.model().decoder().feed(loaded.queue(), ids);
  }

  TempFolder folder;
  std::string python_;
};

TEST_F(Peers, TransformersOpensOurFolderWithTheSameLogitsAndWeOpenItsCopy) {
  test::Engine engine(small_model());
  engine.params.initialize(engine.q, 7);
  save_model(engine.q, engine.params, folder / "model");
  std::vector<int32_t> ids;
  const auto expected =
      logits(fmt::format("{} {}", (folder / "model").string(), (folder / "seen").string()), ids);
  InferenceOptions options;
  options.positions = 32;
  for (const std::string& name : {(folder / "model").string(), (folder / "seen/copy").string()}) {
    LoadedModel loaded(find_model(name), options);
    EXPECT_LT(error(ours(loaded, ids), expected), 1e-5) << name;
  }
}

TEST_F(Peers, PeftOpensOurAdapterWithTheSameLogits) {
  {
    test::Engine base(small_model());
    base.params.initialize(base.q, 7);
    save_model(base.q, base.params, folder / "model");
  }
  LoraOptions lora;
  lora.key = lora.projection = lora.mlp = lora.head = true;
  Arena arena{Arena::Heap{}};
  Queue q(Device::cpu, arena);
  Parameters params(arena, make_spec(small_model(), Decay::all, lora), Precision::f32_true,
                    Gradients::kept);
  load_parameters(q, params, folder / "model");
  params.initialize_adapters(q, 3);
  for (int i = 0; i < params.count(); ++i)  // B begins with zeros, which would show nothing
    if (params.spec().params[static_cast<size_t>(i)].adapter)
      for (int64_t j = 0; j < params.weight(i).numel(); ++j)
        params.weight(i).as<float>()[j] += 0.01f * static_cast<float>(j % 7 - 3);
  Optimizer optimizer(q, params, {});
  SaveRequest request;
  request.dir = folder / "adapter";
  request.base_model = folder / "model";
  CheckpointSaver(q, params, optimizer, nullptr).save(request);
  std::vector<int32_t> ids;
  const auto expected = logits(fmt::format("{} {} {}", (folder / "adapter").string(),
                                           (folder / "seen").string(), (folder / "model").string()),
                               ids);
  InferenceOptions options;
  options.positions = 32;
  LoadedModel loaded(find_model(folder / "adapter"), options);
  EXPECT_LT(error(ours(loaded, ids), expected), 1e-5);
}

}  // namespace
}  // namespace capstan
