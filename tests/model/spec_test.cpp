#include "model/spec.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_folder.h"
#include "support/message_of.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

ModelConfig llama(int64_t vocab, int64_t hidden, int64_t intermediate, int64_t layers,
                  int64_t heads, int64_t kv_heads) {
  ModelConfig c;
  c.vocab = vocab;
  c.hidden = hidden;
  c.intermediate = intermediate;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  return c;
}

// As their model cards and transformers' num_parameters() have them.
TEST(Spec, CountsTheParametersOfKnownModels) {
  const auto count = [](const ModelConfig& c) { return make_spec(c).parameter_count(); };
  EXPECT_EQ(count(llama(32000, 4096, 11008, 32, 32, 32)), 6738415616) << "Llama 2 7B";
  EXPECT_EQ(count(llama(128256, 4096, 14336, 32, 32, 8)), 8030261248) << "Llama 3 8B";
  EXPECT_EQ(count(llama(32000, 2048, 5632, 22, 32, 4)), 1100048384) << "TinyLlama 1.1B";

  ModelConfig qwen2 = llama(151936, 896, 4864, 24, 14, 2);
  qwen2.architecture = "Qwen2ForCausalLM";
  qwen2.qkv_bias = qwen2.tied = true;
  EXPECT_EQ(count(qwen2), 494032768) << "Qwen2 0.5B";

  ModelConfig qwen3 = llama(151936, 1024, 3072, 28, 16, 8);
  qwen3.architecture = "Qwen3ForCausalLM";
  qwen3.head_dim = 128;
  qwen3.qk_norm = qwen3.tied = true;
  EXPECT_EQ(count(qwen3), 596049920) << "Qwen3 0.6B";
}

// One model of each architecture and feature, written by transformers.
TEST(Spec, HasTheNamesAndShapesOfHuggingFaceFiles) {
  int folders = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden")) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ++folders;
    std::map<std::string, std::vector<int64_t>> expected, found;
    const ModelFolder files(entry.path());
    for (const auto& [name, at] : files.tensors()) expected[name] = at.tensor->shape;
    for (const Param& p : make_spec(read_config(entry.path())).params)
      for (const Part& part : p.parts) {
        auto& shape = found[part.name];
        EXPECT_TRUE(shape.empty()) << part.name << " is there twice";
        shape.push_back(part.rows);
        for (int i = 1; i < p.shape.rank(); ++i) shape.push_back(p.shape[i]);
      }
    EXPECT_EQ(found, expected);
  }
  EXPECT_GE(folders, 10);
}

ModelSpec with_everything() {
  ModelConfig c = llama(19, 24, 37, 2, 4, 2);
  c.architecture = "Qwen3ForCausalLM";
  c.qkv_bias = c.o_bias = c.qk_norm = true;
  return make_spec(c);
}

TEST(Spec, PartsCoverEachParameterWithoutGapOrOverlap) {
  for (const Param& p : with_everything().params) {
    int64_t rows = 0;
    for (const Part& part : p.parts) {
      EXPECT_EQ(part.first_row, rows) << part.name;
      rows += part.rows;
    }
    EXPECT_EQ(rows, p.shape[0]) << p.name;
  }
}

TEST(Spec, UnitsGoFromTheEmbeddingThroughTheBlocksToTheHead) {
  const ModelSpec s = with_everything();
  EXPECT_EQ(s.units(), 4);
  for (const Param& p : s.params) {
    int unit = 3;
    if (p.name.find("embed_tokens") != std::string::npos) unit = 0;
    if (p.name.find("layers.0.") != std::string::npos) unit = 1;
    if (p.name.find("layers.1.") != std::string::npos) unit = 2;
    EXPECT_EQ(p.unit, unit) << p.name;
  }
}

TEST(Spec, ABlocksIndexPointsAtItsParametersAndNowhereWithoutThem) {
  const ModelSpec all = with_everything();
  const BlockIndex& b = all.blocks.at(1);
  const auto name = [&](int i) { return all.params.at(static_cast<size_t>(i)).name; };
  const std::string prefix = "model.layers.1.";
  EXPECT_EQ(name(b.input_norm), prefix + "input_layernorm.weight");
  EXPECT_EQ(name(b.qkv), prefix + "self_attn.qkv_proj.weight");
  EXPECT_EQ(name(b.qkv_bias), prefix + "self_attn.qkv_proj.bias");
  EXPECT_EQ(name(b.q_norm), prefix + "self_attn.q_norm.weight");
  EXPECT_EQ(name(b.k_norm), prefix + "self_attn.k_norm.weight");
  EXPECT_EQ(name(b.o), prefix + "self_attn.o_proj.weight");
  EXPECT_EQ(name(b.o_bias), prefix + "self_attn.o_proj.bias");
  EXPECT_EQ(name(b.post_norm), prefix + "post_attention_layernorm.weight");
  EXPECT_EQ(name(b.gate_up), prefix + "mlp.gate_up_proj.weight");
  EXPECT_EQ(name(b.down), prefix + "mlp.down_proj.weight");
  EXPECT_EQ(name(all.final_norm), "model.norm.weight");
  EXPECT_EQ(name(all.head), "lm_head.weight");

  const BlockIndex bare = make_spec(llama(19, 24, 37, 1, 4, 2)).blocks.at(0);
  for (const int i :
       {bare.qkv_bias, bare.q_norm, bare.k_norm, bare.o_bias, bare.gate_up_bias, bare.down_bias})
    EXPECT_EQ(i, -1);
}

TEST(Spec, ATiedHeadIsTheEmbedding) {
  ModelConfig c = llama(19, 24, 37, 1, 4, 2);
  const int64_t apart = make_spec(c).parameter_count();
  c.tied = true;
  const ModelSpec s = make_spec(c);
  EXPECT_EQ(s.head, s.embedding);
  EXPECT_EQ(apart - s.parameter_count(), 19 * 24);
}

TEST(Spec, StartsNormsAtOneBiasesAtZeroAndMatricesAtRandom) {
  for (const Param& p : with_everything().params) {
    const bool bias = p.name.ends_with(".bias"), norm = p.name.find("norm") != std::string::npos;
    EXPECT_EQ(p.init, bias ? Init::zeros : norm ? Init::ones : Init::normal) << p.name;
  }
}

TEST(Spec, RefusesABadConfig) {
  ModelConfig c = llama(19, 24, 37, 1, 4, 3);
  EXPECT_NE(message_of(Fault::usage, [&] { make_spec(c); }).find("num_key_value_heads"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
