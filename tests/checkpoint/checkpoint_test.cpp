#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/save_model.h"
#include "checkpoint/small_model.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

template <class T>
std::vector<std::vector<float>> rounded_to(std::vector<std::vector<float>> all) {
  for (auto& x : all)
    for (float& v : x) v = static_cast<float>(T(v));
  return all;
}

TEST(SaveModel, IsLoadedBackBitForBit) {
  for (const char* name :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    for (const bool tied : {false, true}) {
      QuickFolder folder;
      Model model(small(name, tied));
      const auto saved = model.all();
      save_model(model.queue, model.params, folder / "out");
      EXPECT_EQ(read_config(folder / "out"), model.params.spec().config);
      model.clear();
      load_parameters(model.queue, model.params, folder / "out");
      EXPECT_EQ(model.all(), saved) << name;
    }
  }
}

TEST(SaveModel, HasTheNamesAndShapesOfHuggingFace) {
  QuickFolder folder;
  Model model(small("Qwen2ForCausalLM"));
  save_model(model.queue, model.params, folder / "out");
  const ModelFolder files(folder / "out");
  const auto shape = [&](const char* name) { return files.tensors().at(name).tensor->shape; };
  EXPECT_EQ(files.tensors().size(), 2u * 12 + 3);
  EXPECT_EQ(shape("model.embed_tokens.weight"), (std::vector<int64_t>{50, 24}));
  EXPECT_EQ(shape("model.layers.1.self_attn.k_proj.weight"), (std::vector<int64_t>{12, 24}));
  EXPECT_EQ(shape("model.layers.1.self_attn.v_proj.bias"), (std::vector<int64_t>{12}));
  EXPECT_EQ(shape("model.layers.0.mlp.up_proj.weight"), (std::vector<int64_t>{37, 24}));
  const SafetensorsFile file(folder / "out" / "model.safetensors");
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  const auto generation =
      nlohmann::json::parse(read_text(folder / "out" / "generation_config.json"));
  EXPECT_EQ(generation["bos_token_id"], 1);
  EXPECT_EQ(generation["eos_token_id"], 2);
}

TEST(SaveModel, ConvertsToTheTypeThatIsAskedFor) {
  Model model(small("LlamaForCausalLM"));
  const auto exact = model.all();
  const auto save_and_load = [&](DType type) {
    QuickFolder folder;
    save_model(model.queue, model.params, folder / "out", {.dtype = type});
    EXPECT_EQ(read_config(folder / "out").dtype, type);
    Model loaded(small("LlamaForCausalLM"));
    load_parameters(loaded.queue, loaded.params, folder / "out");
    return loaded.all();
  };
  EXPECT_EQ(save_and_load(DType::f32), exact);
  EXPECT_EQ(save_and_load(DType::bf16), rounded_to<bf16>(exact));
  EXPECT_EQ(save_and_load(DType::f16), rounded_to<f16>(exact));
}

TEST(SaveModel, RefusesToMakeInfinitiesOfWeights) {
  QuickFolder folder;
  Model model(small("LlamaForCausalLM"));
  model.set(0, std::vector<float>(50 * 24, 1e6f));
  const auto message = message_of(Fault::usage, [&] {
    save_model(model.queue, model.params, folder / "out", {.dtype = DType::f16});
  });
  EXPECT_EQ(
      message,
      "model.embed_tokens.weight: has values that f16 cannot represent; save the model as bf16 or "
      "f32");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SaveModel, CutsShardsAndLoadsThem) {
  QuickFolder folder;
  Model model(small("LlamaForCausalLM"));
  const auto saved = model.all();
  save_model(model.queue, model.params, folder / "out", {.dtype = {}, .max_shard_bytes = 10000});
  const auto index =
      nlohmann::json::parse(read_text(folder / "out" / "model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], model.params.spec().parameter_count() * 4);
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors"));
  const std::string first = index["weight_map"]["model.embed_tokens.weight"];
  EXPECT_TRUE(first.starts_with("model-00001-of-000")) << first;
  for (const auto& [name, file] : index["weight_map"].items())
    EXPECT_LE(fs::file_size(folder / "out" / file.get<std::string>().c_str()), 12000u);
  model.clear();
  load_parameters(model.queue, model.params, folder / "out");
  EXPECT_EQ(model.all(), saved);
}

TEST(SaveModel, ReplacesTheCheckpointThatHasTheName) {
  QuickFolder folder;
  Model one(small("LlamaForCausalLM")), two(small("LlamaForCausalLM"));
  two.clear();
  save_model(one.queue, one.params, folder / "out", {.dtype = {}, .max_shard_bytes = 10000});
  save_model(two.queue, two.params, folder / "out");
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors.index.json"));
  load_parameters(one.queue, one.params, folder / "out");
  EXPECT_EQ(one.all(), two.all());
}

TEST(LoadParameters, FillsMastersAndWeights) {
  QuickFolder folder;
  Model f32(small("LlamaForCausalLM"));
  save_model(f32.queue, f32.params, folder / "out");
  Model mixed(small("LlamaForCausalLM"), Precision::bf16_mixed);
  mixed.clear();
  load_parameters(mixed.queue, mixed.params, folder / "out");
  EXPECT_EQ(mixed.all(), f32.all());
  EXPECT_EQ(mixed.values(mixed.params.weight(0)), rounded_to<bf16>(f32.all())[0]);
  Model half(small("LlamaForCausalLM"), Precision::bf16_true);
  load_parameters(half.queue, half.params, folder / "out");
  EXPECT_EQ(half.all(), rounded_to<bf16>(f32.all()));
}

TEST(LoadParameters, ConvertsTensorsLargerThanABlock) {
  QuickFolder folder;
  ModelConfig c = small("LlamaForCausalLM");
  c.vocab = 60'001;  // 60,001 rows of 24 floats are more than one block, and no multiple of it
  Model model(c);
  save_model(model.queue, model.params, folder / "out", {.dtype = DType::bf16});
  const auto saved = model.all();
  model.clear();
  load_parameters(model.queue, model.params, folder / "out");
  EXPECT_EQ(model.all(), rounded_to<bf16>(saved));
}

TEST(LoadParameters, NamesAllThatIsMissingExtraOrOfAnotherShapeAndWritesNothing) {
  QuickFolder folder;
  ModelConfig c = small("LlamaForCausalLM");
  Model saved(c);
  save_model(saved.queue, saved.params, folder / "out");
  c.architecture = "Qwen3ForCausalLM";  // q_norm and k_norm are missing
  c.qk_norm = true;
  c.vocab = 51;  // the embedding has another shape
  c.layers = 1;  // layer 1 is extra
  Model model(c);
  const auto before = model.all();
  const std::string message = load_failure(model, folder / "out");
  EXPECT_TRUE(message.starts_with((folder / "out").string() + ": the tensors do not match"))
      << message;
  for (const char* part :
       {"2 missing (model.layers.0.self_attn.q_norm.weight, "
        "model.layers.0.self_attn.k_norm.weight)",
        "9 unexpected (\"model.layers.1.input_layernorm.weight\", ", ", …)",
        "2 of another shape or type (model.embed_tokens.weight: expected [51, 24] of F32, BF16 or "
        "F16, found [50, 24] of F32, lm_head.weight: ",
        "vocab_size 51"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
  EXPECT_EQ(model.all(), before);
}

// Writes a folder with the model's tensors and others.
void write_with(Model& model, const fs::path& dir, std::vector<SafetensorsWriter::Item> others) {
  fs::create_directories(dir);
  std::vector<std::byte> data;
  for (int i = 0; i < model.params.count(); ++i) {
    const Param& p = model.params.spec().params[static_cast<size_t>(i)];
    for (const Part& part : p.parts) {
      const Tensor t = model.params.stored(i).rows(part.first_row, part.rows);
      std::vector<int64_t> shape = {part.rows};
      if (t.rank() > 1) shape.push_back(t.dim(1));
      others.insert(others.begin(), {part.name, DType::f32, shape});
    }
  }
  SafetensorsWriter file(dir / "model.safetensors", others, {});
  for (const auto& item : others) {
    file.append(std::vector<std::byte>(static_cast<size_t>(item.nbytes())));
  }
  file.commit();
}

TEST(LoadParameters, ToleratesATiedHeadAndTheTablesOfRope) {
  QuickFolder folder;
  Model tied(small("LlamaForCausalLM", true)), untied(small("LlamaForCausalLM"));
  const SafetensorsWriter::Item head{"lm_head.weight", DType::f32, {50, 24}};
  const SafetensorsWriter::Item rope{
      "model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {3}};
  write_with(tied, folder / "out", {head, rope});
  EXPECT_NO_THROW(load_parameters(tied.queue, tied.params, folder / "out"));
  write_with(untied, folder / "other", {{"surprise", DType::f32, {1}}});
  EXPECT_NE(load_failure(untied, folder / "other").find("1 unexpected (\"surprise\")"),
            std::string::npos);
}

TEST(LoadParameters, OnSimChecksWithoutMemory) {
  QuickFolder folder;
  Model model(small("LlamaForCausalLM"));
  save_model(model.queue, model.params, folder / "out");
  Arena arena;
  Queue queue(Device::sim, arena);
  Parameters params(arena, make_spec(small("LlamaForCausalLM")), Precision::f32_true,
                    Gradients::none);
  EXPECT_NO_THROW(load_parameters(queue, params, folder / "out"));
  Parameters other(arena, make_spec(small("Qwen2ForCausalLM")), Precision::f32_true,
                   Gradients::none);
  EXPECT_THROW(load_parameters(queue, other, folder / "out"), Error);
}

TEST(LoadParameters, ReadsWhatTransformersWrote) {
  const fs::path golden = fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden";
  for (const char* name :
       {"llama_gqa", "llama_tied", "mistral_window", "qwen2_bias", "qwen3_qknorm"}) {
    Model model(read_config(golden / name));
    EXPECT_NO_THROW(load_parameters(model.queue, model.params, golden / name)) << name;
  }
}

TEST(ReadConfig, JoinsTheIdsThatEndATextOfBothFiles) {
  const TempFolder folder;
  ModelConfig config;
  config.vocab = 50;
  config.hidden = config.intermediate = 16;
  config.layers = 1;
  config.heads = config.kv_heads = 2;
  config.head_dim = 8;
  config.eos_ids = {2};
  write_text(folder / "config.json", config_json(config));
  const auto ids_with = [&](std::string_view generation) {
    write_text(folder / "generation_config.json", generation);
    return read_config(folder.path()).eos_ids;
  };
  using Ids = std::vector<int64_t>;
  EXPECT_EQ(read_config(folder.path()).eos_ids, Ids{2});
  EXPECT_EQ(ids_with(R"({"eos_token_id": [7, 2, 45, 50, -1]})"), (Ids{2, 7, 45}));
  EXPECT_EQ(ids_with(R"({"eos_token_id": 7})"), (Ids{2, 7}));
  for (const char* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})"})
    EXPECT_EQ(ids_with(none), Ids{2}) << none;
  for (const char* wrong : {"{", "[]", R"({"eos_token_id": "7"})", R"({"eos_token_id": [7.5]})"})
    EXPECT_NE(message_of(Fault::file, [&] { ids_with(wrong); }).find("generation_config.json:1:"),
              std::string::npos)
        << wrong;
}

}  // namespace
}  // namespace capstan
