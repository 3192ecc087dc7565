#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/files.h"
#include "checkpoint/model_folder.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

ModelConfig small(const char* architecture, bool tied = false) {
  ModelConfig c;
  c.architecture = architecture;
  c.vocab = 50;
  c.hidden = 24;
  c.intermediate = 37;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 6;
  c.tied = tied;
  c.qk_norm = c.architecture == "Qwen3ForCausalLM";
  c.qkv_bias = c.architecture == "Qwen2ForCausalLM";
  c.bos_id = 1;
  c.eos_ids = {2};
  return c;
}

// A model in memory of its own.
struct Model {
  explicit Model(const ModelConfig& config, Precision precision = Precision::f32_true)
      : params(arena, make_spec(config), precision, Gradients::none) {
    // Biases and norms, too, must differ from place to place, or a mix-up would not show.
    int64_t n = 0;
    for (int i = 0; i < params.count(); ++i) {
      std::vector<float> x(static_cast<size_t>(params.stored(i).numel()));
      for (float& v : x) v = std::sin(static_cast<float>(++n));
      set(i, x);
    }
    params.refresh_weights(queue);
  }

  void set(int i, const std::vector<float>& x) {
    const Tensor t = params.stored(i);
    if (t.dtype() == DType::f32) return queue.upload(t, x.data());
    std::vector<bf16> y;
    for (const float v : x) y.emplace_back(v);
    queue.upload(t, y.data());
  }
  std::vector<float> values(const Tensor& t) {
    std::vector<float> x(static_cast<size_t>(t.numel()));
    if (t.dtype() == DType::f32) {
      queue.download(x.data(), t);
    } else {
      std::vector<bf16> y(x.size());
      queue.download(y.data(), t);
      for (size_t i = 0; i < y.size(); ++i) x[i] = static_cast<float>(y[i]);
    }
    return x;
  }
  std::vector<std::vector<float>> all() {
    std::vector<std::vector<float>> x;
    for (int i = 0; i < params.count(); ++i) x.push_back(values(params.stored(i)));
    return x;
  }
  void clear() {
    for (int i = 0; i < params.count(); ++i)
      set(i, std::vector<float>(static_cast<size_t>(params.stored(i).numel()), -1));
  }

  Arena arena{Arena::Heap{}};
  Queue queue{Device::cpu, arena};
  Parameters params;
};

template <class T>
std::vector<std::vector<float>> rounded_to(std::vector<std::vector<float>> all) {
  for (auto& x : all)
    for (float& v : x) v = static_cast<float>(T(v));
  return all;
}

std::string load_failure(Model& model, const fs::path& dir) {
  return message_of(Fault::file, [&] { load_parameters(model.queue, model.params, dir); });
}

TEST(SaveModel, IsLoadedBackBitForBit) {
  for (const char* name :
       {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}) {
    for (const bool tied : {false, true}) {
      TempFolder folder;
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
  TempFolder folder;
  Model model(small("Qwen2ForCausalLM"));
  save_model(model.queue, model.params, folder / "out");
  const ModelFolder files(folder / "out");
  const auto shape = [&](const char* name) { return files.tensors().at(name).tensor->shape; };
  EXPECT_EQ(files.tensors().size(), 2u * 12 + 3);
  EXPECT_EQ(shape("model.embed_tokens.weight"), (std::vector<int64_t>{50, 24}));
  EXPECT_EQ(shape("model.layers.1.self_attn.k_proj.weight"), (std::vector<int64_t>{12, 24}));
  EXPECT_EQ(shape("model.layers.1.self_attn.v_proj.bias"), (std::vector<int64_t>{12}));
  EXPECT_EQ(shape("model.layers.0.mlp.up_proj.weight"), (std::vector<int64_t>{37, 24}));
  const auto& entry = files.tensors().at("lm_head.weight");
  EXPECT_EQ(entry.file->header().metadata.at("format"), "pt");
  const auto generation =
      nlohmann::json::parse(read_text(folder / "out" / "generation_config.json"));
  EXPECT_EQ(generation["bos_token_id"], 1);
  EXPECT_EQ(generation["eos_token_id"], 2);
}

TEST(SaveModel, ConvertsToTheTypeThatIsAskedFor) {
  Model model(small("LlamaForCausalLM"));
  const auto exact = model.all();
  const auto save_and_load = [&](DType type) {
    TempFolder folder;
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
  TempFolder folder;
  Model model(small("LlamaForCausalLM"));
  model.set(0, std::vector<float>(50 * 24, 1e6f));
  const auto message = message_of(Fault::usage, [&] {
    save_model(model.queue, model.params, folder / "out", {.dtype = DType::f16});
  });
  EXPECT_EQ(message,
            "model.embed_tokens.weight: has values that f16 cannot hold; save the model as bf16 or "
            "f32");
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(SaveModel, CutsShardsAndLoadsThem) {
  TempFolder folder;
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
  TempFolder folder;
  Model one(small("LlamaForCausalLM")), two(small("LlamaForCausalLM"));
  two.clear();
  save_model(one.queue, one.params, folder / "out", {.dtype = {}, .max_shard_bytes = 10000});
  save_model(two.queue, two.params, folder / "out");
  EXPECT_FALSE(fs::exists(folder / "out" / "model.safetensors.index.json"));
  load_parameters(one.queue, one.params, folder / "out");
  EXPECT_EQ(one.all(), two.all());
}

TEST(LoadParameters, FillsMastersAndWeights) {
  TempFolder folder;
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
  TempFolder folder;
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
  TempFolder folder;
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
  EXPECT_TRUE(message.starts_with((folder / "out").string() + ": the tensors are not those"))
      << message;
  for (const char* part :
       {"2 missing (model.layers.0.self_attn.q_norm.weight, "
        "model.layers.0.self_attn.k_norm.weight)",
        "9 not expected (\"model.layers.1.input_layernorm.weight\", ", ", …)",
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
    int64_t bytes = size_of(item.dtype);
    for (const int64_t extent : item.shape) bytes *= extent;
    file.append(std::vector<std::byte>(static_cast<size_t>(bytes)));
  }
  file.commit();
}

TEST(LoadParameters, ToleratesATiedHeadAndTheTablesOfRope) {
  TempFolder folder;
  Model tied(small("LlamaForCausalLM", true)), untied(small("LlamaForCausalLM"));
  const SafetensorsWriter::Item head{"lm_head.weight", DType::f32, {50, 24}};
  const SafetensorsWriter::Item rope{
      "model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {3}};
  write_with(tied, folder / "out", {head, rope});
  EXPECT_NO_THROW(load_parameters(tied.queue, tied.params, folder / "out"));
  write_with(untied, folder / "other", {{"surprise", DType::f32, {1}}});
  EXPECT_NE(load_failure(untied, folder / "other").find("1 not expected (\"surprise\")"),
            std::string::npos);
}

TEST(LoadParameters, OnSimChecksWithoutMemory) {
  TempFolder folder;
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

class Index : public testing::Test {
 protected:
  Index() {
    save_model(model_.queue, model_.params, dir_, {.dtype = {}, .max_shard_bytes = 10000});
    index_ = nlohmann::json::parse(read_text(path_));
  }
  std::string failure() {
    write_text(path_, index_.dump(2));
    return load_failure(model_, dir_);
  }
  std::string failure_with(const nlohmann::json& file) {
    index_["weight_map"]["model.norm.weight"] = file;
    return failure();
  }

  TempFolder folder_;
  fs::path dir_ = folder_ / "out";
  fs::path path_ = dir_ / "model.safetensors.index.json";
  Model model_{small("LlamaForCausalLM")};
  nlohmann::json index_;
};

TEST_F(Index, NamesMustStayInTheFolder) {
  for (const char* bad : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..",
                          "a\\b.safetensors", "", "model.bin", "x..safetensors"}) {
    const std::string message = failure_with(bad);
    EXPECT_NE(message.find("\"model.norm.weight\": expected the name of a .safetensors file in "
                           "this folder, found \""),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("index.json:"), std::string::npos);
  }
  EXPECT_NE(failure_with(3).find("found 3"), std::string::npos);
  EXPECT_NE(failure_with(std::string("a\0.safetensors", 14)).find("in this folder"),
            std::string::npos);
}

TEST_F(Index, FilesAndTensorsMustBeThere) {
  EXPECT_NE(
      failure_with("gone.safetensors").find("expected the file \"gone.safetensors\", found none"),
      std::string::npos);
  EXPECT_NE(failure_with(index_["weight_map"]["model.embed_tokens.weight"])
                .find("which has no such tensor"),
            std::string::npos);
}

TEST_F(Index, MustBeAMap) {
  index_["weight_map"] = {1, 2};
  EXPECT_NE(failure().find(":5:3: weight_map: expected an object, found a list"),
            std::string::npos);
  index_.erase("weight_map");
  EXPECT_NE(failure().find(":1:1: weight_map: expected an object, found none"), std::string::npos);
  index_ = 3;
  EXPECT_NE(failure().find(":1:1: expected an object, found 3"), std::string::npos);
}

TEST_F(Index, ATensorOfAShardCountsThoughUnlisted) {
  index_["weight_map"].erase("model.norm.weight");
  write_text(path_, index_.dump());
  EXPECT_NO_THROW(load_parameters(model_.queue, model_.params, dir_));
}

TEST_F(Index, AnotherTotalIsWarnedOf) {
  index_["metadata"]["total_size"] = 1;
  write_text(path_, index_.dump());
  testing::internal::CaptureStderr();
  load_parameters(model_.queue, model_.params, dir_);
  EXPECT_NE(
      testing::internal::GetCapturedStderr().find("total_size says 1 bytes, the tensors have"),
      std::string::npos);
}

TEST(ModelFolder, SaysWhatItFoundInstead) {
  TempFolder folder;
  EXPECT_NE(message_of(Fault::file, [&] { ModelFolder f(folder.path()); })
                .find("expected model.safetensors or model.safetensors.index.json, found neither"),
            std::string::npos);
  write_text(folder / "pytorch_model.bin", "");
  EXPECT_NE(message_of(Fault::file, [&] { ModelFolder f(folder.path()); })
                .find("found the pickle pytorch_model.bin, which could run any code"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::file, [&] { ModelFolder f(folder / "none"); }).find("found nothing"),
            std::string::npos);
  EXPECT_NE(message_of(Fault::file, [&] { read_config(folder / "none"); })
                .find("none/config.json: cannot open"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
