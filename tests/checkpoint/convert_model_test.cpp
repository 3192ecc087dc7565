#include "checkpoint/convert_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/manifest.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_model.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class ConvertModel : public testing::Test {
 protected:
  ConvertModel() {
    save_model(model_.queue, model_.params, from_);
    write_text(from_ / "tokenizer.json", "{\"a\": 1}");
    write_text(from_ / "notes.txt", "not the model's");
  }
  std::vector<std::vector<float>> load(const fs::path& dir) {
    Model model(small("LlamaForCausalLM"));
    model.clear();
    load_parameters(model.queue, model.params, dir);
    return model.all();
  }

  QuickFolder folder_;
  fs::path from_ = folder_ / "from", to_ = folder_ / "to";
  Model model_{small("LlamaForCausalLM")};
};

TEST_F(ConvertModel, KeepsValuesAndCompanions) {
  convert_model(from_, to_);
  EXPECT_EQ(load(to_), model_.all());
  EXPECT_EQ(read_text(to_ / "tokenizer.json"), "{\"a\": 1}");
  EXPECT_EQ(read_text(to_ / "config.json"), read_text(from_ / "config.json"));
  EXPECT_FALSE(fs::exists(to_ / "notes.txt"));
  EXPECT_NO_THROW(verify_checkpoint(to_));
  EXPECT_TRUE(read_manifest(to_).contains("tokenizer.json"));
}

TEST_F(ConvertModel, CutsAndJoinsShards) {
  convert_model(from_, to_, {.dtype = {}, .max_shard_bytes = 10'000});
  EXPECT_FALSE(fs::exists(to_ / "model.safetensors"));
  EXPECT_TRUE(fs::exists(to_ / "model.safetensors.index.json"));
  EXPECT_EQ(load(to_), model_.all());
  convert_model(to_, folder_ / "one", {.dtype = {}, .max_shard_bytes = INT64_MAX});
  EXPECT_TRUE(fs::exists(folder_ / "one" / "model.safetensors"));
  EXPECT_EQ(load(folder_ / "one"), model_.all());
}

TEST_F(ConvertModel, ChangesTheTypeAndSaysSoInTheConfig) {
  auto all = model_.all();
  for (auto& x : all)
    for (float& v : x) v = static_cast<float>(bf16(v));
  convert_model(from_, to_, {.dtype = DType::bf16, .max_shard_bytes = INT64_MAX});
  EXPECT_EQ(load(to_), all);
  EXPECT_EQ(read_config(to_).dtype, DType::bf16);
  EXPECT_LT(fs::file_size(to_ / "model.safetensors"),
            fs::file_size(from_ / "model.safetensors") * 6 / 10);
  auto config = nlohmann::json::parse(read_text(from_ / "config.json"));
  config.erase("torch_dtype");
  config["dtype"] = "float32";
  config["mine"] = "kept";
  write_text(from_ / "config.json", config.dump());
  convert_model(from_, to_, {.dtype = DType::f16, .max_shard_bytes = INT64_MAX});
  const auto converted = nlohmann::json::parse(read_text(to_ / "config.json"));
  EXPECT_EQ(converted["dtype"], "float16");
  EXPECT_EQ(converted["mine"], "kept");
  EXPECT_FALSE(converted.contains("torch_dtype"));
}

TEST_F(ConvertModel, MakesSafetensorsOfPickles) {
  const fs::path pickles = fs::path(CAPSTAN_SOURCE_DIR) / "tests/checkpoint/pickles";
  fs::create_directory(folder_ / "torch");
  fs::copy_file(pickles / "good.bin", folder_ / "torch" / "pytorch_model.bin");
  write_text(folder_ / "torch" / "config.json", "{}");
  convert_model(folder_ / "torch", to_, {.dtype = DType::bf16, .max_shard_bytes = INT64_MAX});
  const ModelFolder before(folder_ / "torch"), after(to_);
  EXPECT_EQ(before.tensors().size(), after.tensors().size());
  for (const auto& [name, entry] : after.tensors()) {
    EXPECT_EQ(entry.tensor->shape, before.tensors().find(name)->second.tensor->shape) << name;
    EXPECT_TRUE(entry.tensor->strides.empty());
  }
  EXPECT_EQ(after.tensors().at("i64").tensor->type.name, "I64");
  EXPECT_EQ(after.tensors().at("turned").tensor->type.name, "BF16");
}

TEST_F(ConvertModel, ReplacesNothingThatItDidNotWrite) {
  save_model(model_.queue, model_.params, from_);
  convert_model(from_, to_);
  EXPECT_NO_THROW(convert_model(from_, to_)) << "its own";
  fs::create_directory(to_ / "original");
  write_text(to_ / "original" / "notes.txt", "years of work");
  EXPECT_EQ(
      message_of(Fault::usage, [&] { convert_model(from_, to_); }),
      to_.string() +
          ": would be replaced, but contains original/notes.txt, which Capstan did not write; "
          "write to another folder, or move that file");
  fs::remove_all(to_ / "original");
  EXPECT_NO_THROW(convert_model(from_, to_));
  fs::remove(to_ / kManifest);
  EXPECT_NE(message_of(Fault::usage, [&] { convert_model(from_, to_); }).find("did not write"),
            std::string::npos);
}

TEST_F(ConvertModel, RefusesWhatItCannotDoAndLeavesNothing) {
  model_.set(0, std::vector<float>(50 * 24, 1e6f));
  save_model(model_.queue, model_.params, from_);
  EXPECT_NE(
      message_of(
          Fault::usage,
          [&] { convert_model(from_, to_, {.dtype = DType::f16, .max_shard_bytes = INT64_MAX}); })
          .find("has values that f16 cannot represent"),
      std::string::npos);
  EXPECT_NE(message_of(Fault::usage, [&] { convert_model(from_, from_); })
                .find("would be replaced with it"),
            std::string::npos);
  EXPECT_NE(
      message_of(Fault::file, [&] { convert_model(folder_ / "none", to_); }).find("found nothing"),
      std::string::npos);
  fs::remove(from_ / "config.json");
  EXPECT_NE(
      message_of(Fault::file, [&] { convert_model(from_, to_); }).find("config.json: cannot open"),
      std::string::npos);
  EXPECT_FALSE(fs::exists(to_));
}

}  // namespace
}  // namespace capstan
