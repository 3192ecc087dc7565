#include "checkpoint/training_checkpoint.h"

#include <gtest/gtest.h>

#include <set>

#include "checkpoint/find.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_adapter.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTensors = 2 * (2 * 6 + 1);  // q, k, v, gate, up and down of two layers; the head

OptimizerOptions sgd(double momentum) {
  return {.kind = OptimizerOptions::Kind::sgd, .momentum = momentum};
}

TEST(AdapterCheckpoint, IsResumedBitForBitInEveryPrecisionAndWithEveryOptimizer) {
  QuickFolder folder;
  Model base(small("LlamaForCausalLM"));
  save_model(base.queue, base.params, folder / "base");
  for (const auto precision : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed})
    for (const OptimizerOptions& options : {OptimizerOptions(), sgd(0.9), sgd(0)})
      for (const auto quantize : {Quantize::none, Quantize::nf4, Quantize::nf4_dq}) {
        SmallRun run(precision, options, kLora, quantize),
            other(precision, options, kLora, quantize);
        load_parameters(run.model.queue, run.model.params, folder / "base");
        save(run, folder / "step-000012", 12);
        EXPECT_NO_THROW(verify_checkpoint(folder / "step-000012"));
        load_parameters(other.model.queue, other.model.params, folder / "base");
        other.set(1);
        EXPECT_EQ(resume(other, folder / "step-000012"), SmallRun::state(12));
        EXPECT_EQ(other.optimizer.steps(), 12);
        EXPECT_EQ(other.bits() == run.bits(), true) << name_of(precision) << name_of(quantize);
      }
}

TEST(AdapterCheckpoint, IsAnAdaptersFolderAndNoModels) {
  QuickFolder folder;
  SmallRun run(Precision::bf16_mixed, {}, kLora);
  save(run, folder / "final", 5);
  std::set<std::string> names;
  for (const auto& [name, _] : read_manifest(folder / "final")) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                          "tokenizer.json", "training_state/optimizer.safetensors",
                                          "training_state/state.json"}));
  EXPECT_TRUE(is_adapter(folder / "final"));
  const AdapterConfig config = read_adapter_config(folder / "final");
  EXPECT_EQ(config.base, "models/base");
  EXPECT_EQ(config.lora.r, 3);

  const SafetensorsFile file(folder / "final" / kAdapterFile);
  EXPECT_EQ(file.tensors().size(), kTensors);
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  const auto* b = file.find("base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{12, 3}));
  EXPECT_EQ(b->type.name, "F32") << "the masters'";

  const SafetensorsFile moments(folder / "final" / kOptimizerFile);
  EXPECT_EQ(moments.tensors().size(), 2 * kTensors);
  EXPECT_NE(moments.find("base_model.model.lm_head.lora_A.weight.exp_avg_sq"), nullptr);
}

TEST(AdapterCheckpoint, CountsAndStagesWhatIsTrained) {
  QuickFolder folder;
  SmallRun run(Precision::f32_true, {}, kLora, Quantize::int8);
  CheckpointSaver live(run.model.queue, run.model.params, run.optimizer, nullptr);
  EXPECT_EQ(live.bytes(), 3 * 4 * run.model.params.spec().trainable_count());
  const int64_t before = at(run.model.arena.highest(), Category::staging);
  Snapshot snapshot(run.model.queue, run.model.params, run.optimizer);
  const int64_t staged = at(run.model.arena.highest(), Category::staging) - before;
  EXPECT_GE(staged, live.bytes());
  EXPECT_LT(staged, 2 * live.bytes()) << "rounded up to the alignment, and no base";
  CheckpointSaver saver(run.model.queue, run.model.params, run.optimizer, &snapshot);
  for (const int64_t step : {1, 2, 3}) {
    run.set(step);
    saver.save(request(folder / ("step-" + std::to_string(step)).c_str(), step));
    run.set(step + 1000);
  }
  saver.wait();
  SmallRun other(Precision::f32_true, {}, kLora, Quantize::int8);
  for (const int64_t step : {1, 3}) {
    resume(other, folder / ("step-" + std::to_string(step)).c_str());
    run.set(step);
    EXPECT_EQ(other.bits() == run.bits(), true) << step;
  }
}

TEST(AdapterCheckpoint, IsFoundVerifiedAndKeptLikeAModels) {
  QuickFolder folder;
  SmallRun run(Precision::f32_true, {}, kLora);
  for (const int64_t step : {1, 2, 3, 4})
    save(run, folder / ("step-" + std::to_string(step)).c_str(), step);
  keep_last(folder.path(), 3);
  EXPECT_FALSE(fs::exists(folder / "step-1"));
  fs::resize_file(folder / "step-4" / kAdapterFile, 1000);
  replace(folder / "step-3" / kAdapterConfigFile, "\"r\": 3", "\"r\": 4");
  const CheckpointSearch search = newest_checkpoint(folder.path());
  ASSERT_TRUE(search.newest);
  EXPECT_EQ(search.newest->dir, folder / "step-2");
  ASSERT_EQ(search.skipped.size(), 2U);
  EXPECT_NE(search.skipped[0].find("step-4/adapter_model.safetensors: expected "),
            std::string::npos);
  EXPECT_NE(search.skipped[1].find("step-3/adapter_config.json: expected contents"),
            std::string::npos);
  // What a reader would take for the other kind of checkpoint.
  SmallRun whole;
  whole.save(folder / "final", 9);
  write_text(folder / "final" / kAdapterConfigFile, "{}");
  EXPECT_NE(message_of(Fault::file, [&] { verify_checkpoint(folder / "final"); })
                .find("adapter_config.json: unexpected file"),
            std::string::npos);
}

TEST(AdapterCheckpoint, TheOtherKindIsToldAndChangesNothing) {
  QuickFolder folder;
  SmallRun whole, run(Precision::f32_true, {}, kLora), half(Precision::bf16_true, {}, kLora),
      plain(Precision::f32_true, sgd(0.9), kLora);
  whole.save(folder / "whole", 1);
  save(run, folder / "adapter", 1);
  EXPECT_NE(failure(run, [&] { resume(run, folder / "whole"); })
                .find("adapter_model.safetensors: expected an adapter's weights, found only a "
                      "model; give the folder of an adapter"),
            std::string::npos);
  EXPECT_NE(failure(whole, [&] { resume(whole, folder / "adapter"); })
                .find("expected a model's weights, found an adapter, which needs its base"),
            std::string::npos);
  EXPECT_NE(failure(half, [&] { resume(half, folder / "adapter"); })
                .find("was saved in another precision than bf16-true"),
            std::string::npos);
  EXPECT_NE(failure(plain, [&] { resume(plain, folder / "adapter"); })
                .find("expected the moments of SGD, found those of \"AdamW\""),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
