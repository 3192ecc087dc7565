#include "checkpoint/adapter.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/quick_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/small_adapter.h"
#include "checkpoint/tensor_writer.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

TEST(LoadAdapter, ConvertsTypesAndRefreshesTheWeights) {
  QuickFolder folder;
  SmallRun from(Precision::f32_true, {}, kLora), half(Precision::bf16_true, {}, kLora),
      mixed(Precision::bf16_mixed, {}, kLora);
  save(from, folder / "f32", 3);
  load(half, folder / "f32");
  load(mixed, folder / "f32");
  for (int i = 0; i < from.model.params.count(); ++i) {
    if (!from.model.params.spec().params[static_cast<size_t>(i)].adapter) continue;
    auto expected = from.model.values(from.model.params.weight(i));
    EXPECT_EQ(mixed.model.values(mixed.model.params.master(i)), expected);
    for (float& x : expected) x = static_cast<float>(bf16(x));
    EXPECT_EQ(half.model.values(half.model.params.weight(i)), expected);
    EXPECT_EQ(mixed.model.values(mixed.model.params.weight(i)), expected);
  }
}

TEST(LoadAdapter, OneErrorNamesAllTensorsThatDiffer) {
  QuickFolder folder;
  LoraOptions less = kLora, more = kLora;
  less.key = less.head = false;
  more.projection = true;
  SmallRun run(Precision::f32_true, {}, kLora), smaller(Precision::f32_true, {}, less),
      larger(Precision::f32_true, {}, more);
  save(run, folder / "a", 1);
  EXPECT_NE(failure(smaller, [&] { load(smaller, folder / "a"); })
                .find("adapter_model.safetensors: the tensors do not match this model's "
                      "adapters (LlamaForCausalLM, 2 layers, r 3): 6 unexpected "
                      "(\"base_model.model.lm_head.lora_A.weight\", "),
            std::string::npos);
  EXPECT_NE(failure(larger, [&] { load(larger, folder / "a"); })
                .find("4 missing (base_model.model.model.layers.0.self_attn.o_proj.lora_A.weight"),
            std::string::npos);
  // The config says r 4 as the model does; the file does not.
  LoraOptions wide = kLora;
  wide.r = 4;
  SmallRun wider(Precision::f32_true, {}, wide);
  replace(folder / "a" / kAdapterConfigFile, "\"r\": 3", "\"r\": 4");
  EXPECT_NE(failure(wider, [&] { load(wider, folder / "a"); })
                .find("26 of another shape or type (base_model.model.model.layers.0.self_attn."
                      "q_proj.lora_A.weight: expected [4, 24] of F32, BF16 or F16, found [3, 24]"),
            std::string::npos);
}

// An adapter's file with one more tensor: PEFT's copy of the head, as `dtype`.
void add_head_copy(Model& model, const fs::path& dir, DType dtype, float factor) {
  std::vector<TensorToWrite> tensors;
  const SafetensorsFile file(dir / kAdapterFile);
  for (const StoredTensor& t : file.tensors())
    tensors.push_back({{t.name, t.type, t.shape},
                       t.type,
                       [&](int64_t first, int64_t n, std::vector<std::byte>& room) {
                         return file.read(t, first, n, room);
                       }});
  const Tensor head = model.params.weight(model.params.spec().head);
  std::vector<float> values = model.values(head);
  values.back() *= factor;
  tensors.push_back(tensor_to_write("base_model.model.lm_head.base_layer.weight",
                                    Tensor(values.data(), DType::f32, head.shape()), dtype,
                                    nullptr));
  write_tensor_file(dir / kAdapterFile, tensors, {}, Threads::one);
}

TEST(LoadAdapter, TakesPeftsCopyOfTheHeadOnlyIfItIsTheBases) {
  for (const auto precision : {Precision::f32_true, Precision::bf16_true, Precision::bf16_mixed})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      QuickFolder folder;
      SmallRun run(precision, {}, kLora), other(precision, {}, kLora);
      save(run, folder / "a", 1);
      add_head_copy(run.model, folder / "a", dtype, 1);
      other.set(2);
      load(other, folder / "a");
      EXPECT_EQ(other.model.all(), run.model.all());
      save(run, folder / "a", 1);
      add_head_copy(run.model, folder / "a", dtype, 1.25f);
      EXPECT_NE(failure(other, [&] { load(other, folder / "a"); })
                    .find("base_model.model.lm_head.base_layer.weight: expected the head of the "
                          "base model, found other values; use the base model"),
                std::string::npos);
    }
  QuickFolder folder;
  LoraOptions no_head = kLora;
  no_head.head = false;
  SmallRun run(Precision::f32_true, {}, no_head);
  save(run, folder / "a", 1);
  add_head_copy(run.model, folder / "a", DType::f32, 1);
  EXPECT_NE(failure(run, [&] { load(run, folder / "a"); }).find("1 unexpected"), std::string::npos);
}

TEST(LoadAdapter, AnotherScaleIsToldAndChangesNothing) {
  QuickFolder folder;
  LoraOptions louder = kLora;
  louder.alpha = 32;
  SmallRun run(Precision::f32_true, {}, kLora), other(Precision::f32_true, {}, louder);
  save(run, folder / "a", 1);
  for (const auto& load_it : {load, +[](SmallRun&r, const fs::path&d) { resume(r, d); }})
    EXPECT_NE(failure(other, [&] { load_it(other, folder / "a"); })
                  .find("adapter_config.json: expected r 3, lora_alpha 32, use_rslora false, found "
                        "r 3, lora_alpha 16, use_rslora false; use the options"),
              std::string::npos);
}

TEST(LoadAdapter, DamagedAndMissingFilesAreNamed) {
  QuickFolder folder;
  SmallRun run(Precision::f32_true, {}, kLora);
  save(run, folder / "a", 1);
  const auto message = [&] { return failure(run, [&] { load(run, folder / "a"); }); };
  const fs::path file = folder / "a" / kAdapterFile;
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_NE(message().find("a/adapter_model.safetensors"), std::string::npos);
  fs::rename(file, folder / "a" / "adapter_model.bin");
  EXPECT_NE(message().find("adapter_model.safetensors: expected an adapter's weights, found "
                           "adapter_model.bin, a pickle; save the adapter with "
                           "safe_serialization=True"),
            std::string::npos);
  fs::remove(folder / "a" / "adapter_model.bin");
  EXPECT_NE(message().find("adapter_model.safetensors: expected an adapter's weights, found none"),
            std::string::npos);
  save(run, folder / "a", 1);
  fs::remove(folder / "a" / kAdapterConfigFile);
  EXPECT_NE(message().find("a/adapter_config.json"), std::string::npos);
  EXPECT_NE(load_failure(run.model, folder / "a").find("found none of them"), std::string::npos);
}

// Folders that PEFT wrote are read, and what we make of them holds the same bits.
TEST(PeftsFolders, AreReadAndWrittenAgain) {
  const fs::path tests = fs::path(CAPSTAN_SOURCE_DIR) / "tests";
  int folders = 0;
  for (const auto& entry : fs::directory_iterator(tests / "golden_lora")) {
    if (!is_adapter(entry.path())) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++folders;
    const AdapterConfig config = read_adapter_config(entry.path());
    const fs::path base = tests / "golden" / config.base;
    Model model(read_config(base), Precision::f32_true, config.lora);
    load_parameters(model.queue, model.params, base);
    load_adapter(model.queue, model.params, entry.path());
    QuickFolder folder;
    Optimizer optimizer(model.queue, model.params, {});
    SaveRequest to = request(folder / "out", 1);
    to.base_model = config.base;
    CheckpointSaver(model.queue, model.params, optimizer, nullptr).save(to);

    const SafetensorsFile theirs(entry.path() / kAdapterFile), ours(folder / "out" / kAdapterFile);
    ASSERT_EQ(theirs.tensors().size(), ours.tensors().size());
    for (const StoredTensor& t : theirs.tensors()) {
      const StoredTensor* same = ours.find(t.name);
      ASSERT_NE(same, nullptr) << t.name;
      std::vector<std::byte> room, other_room;
      const auto a = theirs.read(t, 0, t.numel(), room);
      const auto b = ours.read(*same, 0, same->numel(), other_room);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << t.name;
    }
    using nlohmann::json;
    const json found = json::parse(read_text(folder / "out" / kAdapterConfigFile));
    const json expected = json::parse(read_text(entry.path() / kAdapterConfigFile));
    for (const auto& [key, value] : found.items()) {
      if (key == "target_modules")
        EXPECT_EQ(value.get<std::set<std::string>>(), expected[key].get<std::set<std::string>>());
      else
        EXPECT_EQ(value, expected[key]) << key;
    }
  }
  EXPECT_GE(folders, 6);
}

}  // namespace
}  // namespace capstan
