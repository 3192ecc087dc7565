#include "model/config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/message_of.h"

namespace capstan {
namespace {

using nlohmann::ordered_json;

// A small config of each architecture with the keys that must be there, one per line: vocab_size is
// on line 5, as the messages below say.
ordered_json small(const char* architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 128},      {"hidden_size", 64},
          {"intermediate_size", 96},         {"num_hidden_layers", 3}, {"num_attention_heads", 8},
          {"num_key_value_heads", 4}};
}
ordered_json llama() {
  return small("LlamaForCausalLM");
}

ModelConfig parse(const ordered_json& j) {
  return parse_config(j.dump(2), "config.json");
}
std::string refusal(const ordered_json& j) {
  return message_of(Fault::file, [&] { parse(j); });
}
ordered_json with(ordered_json j, const char* key, const ordered_json& value) {
  j[key] = value;
  return j;
}
ordered_json without(ordered_json j, const char* key) {
  j.erase(key);
  return j;
}
std::string refusal(const char* key, const ordered_json& value) {
  return refusal(with(llama(), key, value));
}

TEST(ParseConfig, TakesForGrantedWhatTransformersDoes) {
  const ModelConfig c = parse(without(llama(), "num_key_value_heads"));
  EXPECT_EQ(c.vocab, 128);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.max_positions, 2048);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.eos_ids, std::vector<int64_t>{2});
  EXPECT_FALSE(c.tied || c.qkv_bias || c.o_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.sliding_window, 0);
}

TEST(ParseConfig, LlamaBiases) {
  const ModelConfig c = parse(with(with(llama(), "attention_bias", true), "mlp_bias", true));
  EXPECT_TRUE(c.qkv_bias && c.o_bias && c.mlp_bias);
}

TEST(ParseConfig, LlamaHasNoWindowWhateverTheFileSays) {
  EXPECT_EQ(parse(with(llama(), "sliding_window", 16)).sliding_window, 0);
}

TEST(ParseConfig, Mistral) {
  const auto mistral = small("MistralForCausalLM");
  EXPECT_EQ(parse(without(mistral, "num_key_value_heads")).kv_heads, 8);
  EXPECT_EQ(parse(with(mistral, "num_key_value_heads", nullptr)).kv_heads, 8);
  EXPECT_EQ(parse(mistral).sliding_window, 4096);
  EXPECT_EQ(parse(with(mistral, "sliding_window", 16)).sliding_window, 16);
  EXPECT_EQ(parse(with(mistral, "sliding_window", nullptr)).sliding_window, 0);
  EXPECT_FALSE(parse(with(mistral, "attention_bias", true)).qkv_bias) << "it has no such key";
  const char *full = "full_attention", *sliding = "sliding_attention";
  EXPECT_EQ(parse(with(mistral, "layer_types", {sliding, sliding, sliding})).sliding_window, 4096);
  EXPECT_EQ(parse(with(mistral, "layer_types", {full, full, full})).sliding_window, 0);
  EXPECT_NE(refusal(with(mistral, "layer_types", {full, sliding, sliding})).find("in 2 of 3"),
            std::string::npos)
      << "transformers takes it for a Ministral";
}

TEST(ParseConfig, Qwen2AlwaysHasBiasesOfQueryKeyAndValue) {
  const ModelConfig c = parse(small("Qwen2ForCausalLM"));
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_FALSE(c.o_bias || c.mlp_bias || c.qk_norm);
  EXPECT_EQ(c.bos_id, -1);
  EXPECT_TRUE(c.eos_ids.empty());
}

TEST(ParseConfig, Qwen3HasNormsOfQueryAndKeyAndHeadsOf128) {
  const auto qwen3 = small("Qwen3ForCausalLM");
  const ModelConfig c = parse(qwen3);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(c.qkv_bias || c.o_bias);
  EXPECT_EQ(c.head_dim, 128);
  EXPECT_EQ(parse(with(qwen3, "head_dim", 16)).head_dim, 16);
  const ModelConfig biased = parse(with(qwen3, "attention_bias", true));
  EXPECT_TRUE(biased.qkv_bias && biased.o_bias);
}

TEST(ParseConfig, QwenUsesTheWindowInAllLayersOrInNone) {
  auto qwen = with(small("Qwen2ForCausalLM"), "sliding_window", 16);
  EXPECT_EQ(parse(qwen).sliding_window, 0) << "use_sliding_window is absent";
  qwen["use_sliding_window"] = true;
  EXPECT_EQ(parse(with(qwen, "max_window_layers", 0)).sliding_window, 16);
  EXPECT_EQ(parse(with(qwen, "max_window_layers", 3)).sliding_window, 0);
  EXPECT_EQ(parse(qwen).sliding_window, 0) << "max_window_layers is 28 when absent";
  EXPECT_EQ(refusal(with(qwen, "max_window_layers", 1)),
            "config.json:13:3: max_window_layers: expected the sliding window in all layers or in "
            "none, found it in 2 of 3");
  const char *full = "full_attention", *sliding = "sliding_attention";
  EXPECT_EQ(parse(with(qwen, "layer_types", {sliding, sliding, sliding})).sliding_window, 16);
  EXPECT_EQ(parse(with(qwen, "layer_types", {full, full, full})).sliding_window, 0);
  EXPECT_EQ(refusal(with(qwen, "layer_types", {full, sliding, full})),
            "config.json:13:3: layer_types: expected the sliding window in all layers or in none, "
            "found it in 1 of 3");
  EXPECT_NE(refusal(with(qwen, "layer_types", {full, full})).find("a list of 3 names"),
            std::string::npos);
  EXPECT_NE(refusal(with(qwen, "layer_types", {full, full, "other"})).find("found \"other\""),
            std::string::npos);
}

TEST(ParseConfig, RopeOfTransformers4) {
  auto j = with(llama(), "rope_theta", 500000.0);
  EXPECT_EQ(parse(j).rope_theta, 500000);
  j["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  EXPECT_EQ(parse(j).rope_scaling.kind, RopeScaling::Kind::linear);
  EXPECT_EQ(parse(j).rope_scaling.factor, 2);
  EXPECT_EQ(parse(j).rope_theta, 500000);
}

TEST(ParseConfig, RopeOfTransformers5) {
  ordered_json rope = {{"rope_type", "llama3"},   {"rope_theta", 500000.0},
                       {"factor", 8.0},           {"low_freq_factor", 1.5},
                       {"high_freq_factor", 4.5}, {"original_max_position_embeddings", 1024}};
  const ModelConfig c = parse(with(with(llama(), "rope_theta", 1.0), "rope_parameters", rope));
  const RopeScaling expected{RopeScaling::Kind::llama3, 8, 1.5, 4.5, 1024};
  EXPECT_EQ(c.rope_scaling, expected);
  EXPECT_EQ(c.rope_theta, 500000) << "the inner one counts";
  rope.erase("original_max_position_embeddings");
  EXPECT_EQ(parse(with(llama(), "rope_parameters", rope)).rope_scaling.original_positions, 2048);
  const auto outside = with(llama(), "original_max_position_embeddings", 512);
  EXPECT_EQ(parse(with(outside, "rope_parameters", rope)).rope_scaling.original_positions, 512);
  rope = {{"rope_type", "default"}, {"rope_theta", 7.0}};
  EXPECT_EQ(parse(with(llama(), "rope_parameters", rope)).rope_scaling, RopeScaling{});
}

TEST(ParseConfig, RefusesRopesThatItDoesNotKnow) {
  EXPECT_EQ(refusal("rope_scaling", {{"rope_type", "yarn"}, {"factor", 4}}),
            "config.json:12:5: rope_scaling.rope_type: expected one of default, linear, llama3, "
            "found \"yarn\"");
  EXPECT_EQ(refusal("rope_parameters", {{"rope_theta", 1}, {"rope_type", "linear"}}),
            "config.json:11:3: rope_parameters.factor: expected a number, found none; add it");
  EXPECT_EQ(refusal("rope_parameters", {{"rope_type", "linear"}, {"factor", 0.5}}),
            "config.json:13:5: rope_parameters.factor: expected a number of at least 1, found 0.5");
  EXPECT_EQ(refusal("rope_parameters", {{"rope_theta", -1}}),
            "config.json:12:5: rope_parameters.rope_theta: expected a number above 0, found -1");
  EXPECT_EQ(refusal("rope_scaling", "linear"),
            "config.json:11:3: rope_scaling: expected an object, found \"linear\"");
  EXPECT_NE(refusal("partial_rotary_factor", 0.5).find("expected 1 or none"), std::string::npos);
}

TEST(ParseConfig, TypesAndTokens) {
  EXPECT_EQ(parse(with(llama(), "torch_dtype", "bfloat16")).dtype, DType::bf16);
  EXPECT_EQ(parse(with(llama(), "dtype", "float16")).dtype, DType::f16);
  EXPECT_EQ(refusal("dtype", "float8"),
            "config.json:11:3: dtype: expected one of float32, bfloat16, float16, found "
            "\"float8\"");
  const ordered_json eos = {3, 4};
  EXPECT_EQ(parse(with(llama(), "eos_token_id", eos)).eos_ids, (std::vector<int64_t>{3, 4}));
  EXPECT_TRUE(parse(with(llama(), "eos_token_id", nullptr)).eos_ids.empty());
  EXPECT_EQ(parse(with(llama(), "bos_token_id", nullptr)).bos_id, -1);
  EXPECT_EQ(parse(with(llama(), "bos_token_id", -1)).bos_id, -1);
  EXPECT_EQ(refusal("eos_token_id", 128),
            "config.json:11:3: eos_token_id: expected ids below vocab_size, which is 128, found "
            "128");
  EXPECT_EQ(refusal("bos_token_id", 4000000000),
            "config.json:11:3: bos_token_id: expected an id below vocab_size, which is 128, found "
            "4000000000");
}

TEST(ParseConfig, AnUnknownArchitectureListsTheKnownOnes) {
  const std::string known =
      "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM";
  EXPECT_EQ(refusal("architectures", {"GPT2LMHeadModel"}),
            "config.json:2:3: architectures: expected one of " + known +
                ", found \"GPT2LMHeadModel\"; other architectures are not supported");
  EXPECT_EQ(
      refusal(without(llama(), "architectures")),
      "config.json:1:1: architectures: expected a list with one of " + known + ", found none");
  EXPECT_NE(refusal("architectures", "LlamaForCausalLM").find("expected a list with"),
            std::string::npos);
}

TEST(ParseConfig, TheModelTypeStandsInForTheArchitectureAndMustAgreeWithIt) {
  const auto j = with(without(llama(), "architectures"), "model_type", "qwen2");
  EXPECT_EQ(parse(j).architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(refusal("model_type", "mistral"),
            "config.json:11:3: model_type: expected \"llama\" for LlamaForCausalLM, found "
            "\"mistral\"");
}

TEST(ParseConfig, HeadsMustDivide) {
  EXPECT_EQ(refusal("num_attention_heads", 7),
            "config.json:9:3: num_attention_heads: expected a divisor of hidden_size, which is 64, "
            "found 7; or give head_dim");
  EXPECT_EQ(parse(with(with(llama(), "num_attention_heads", 12), "head_dim", 8)).head_dim, 8);
  EXPECT_EQ(refusal("num_key_value_heads", 3),
            "config.json:10:3: num_key_value_heads: expected a divisor of num_attention_heads, "
            "which is 8, found 3");
  EXPECT_EQ(refusal("head_dim", 7),
            "config.json:11:3: head_dim: expected an even number (RoPE rotates pairs), found 7");
  for (const int bad : {0, -8, 258, 1024}) {
    EXPECT_EQ(refusal("head_dim", bad),
              fmt::format("config.json:11:3: head_dim: expected a whole number from 2 to 256, "
                          "found {}",
                          bad));
  }
}

TEST(ParseConfig, RefusesSizesThatAreNotPositiveOrOverflow) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "max_position_embeddings"}) {
    for (const int64_t bad : {int64_t{0}, int64_t{-1}, INT64_MIN, INT64_MAX}) {
      // A head_dim, so that a wrong hidden_size is not a wrong number of heads.
      const std::string message = refusal(with(with(llama(), "head_dim", 8), key, bad));
      EXPECT_NE(message.find(fmt::format("{}: expected a whole number from 1 to", key)),
                std::string::npos)
          << message;
      EXPECT_NE(message.find(fmt::format("found {}", bad)), std::string::npos) << message;
    }
    EXPECT_NE(refusal(key, 18446744073709551615u).find("too large"), std::string::npos) << key;
  }
  // None is said by null, or by no such key.
  const std::string window =
      refusal(with(small("MistralForCausalLM"), "sliding_window", int64_t{1} << 31));
  EXPECT_NE(window.find("expected a whole number from 1 to 2147483647, found 2147483648"),
            std::string::npos)
      << window;
}

TEST(ParseConfig, RefusesWrongTypesAndMissingKeys) {
  EXPECT_EQ(refusal("vocab_size", "128"),
            "config.json:5:3: vocab_size: expected a whole number, found \"128\"");
  EXPECT_EQ(refusal("vocab_size", 128.5),
            "config.json:5:3: vocab_size: expected a whole number, found 128.5");
  EXPECT_EQ(refusal(without(llama(), "hidden_size")),
            "config.json:1:1: hidden_size: expected a whole number, found none; add it");
  EXPECT_EQ(refusal("rms_norm_eps", "1e-5"),
            "config.json:11:3: rms_norm_eps: expected a number, found \"1e-5\"");
  EXPECT_EQ(refusal("tie_word_embeddings", 1),
            "config.json:11:3: tie_word_embeddings: expected true or false, found 1");
  EXPECT_EQ(refusal(ordered_json::array()), "config.json:1:1: expected an object, found a list");
}

TEST(ParseConfig, RefusesWhatTheModelCannotDo) {
  EXPECT_EQ(refusal("hidden_act", "gelu"),
            "config.json:11:3: hidden_act: expected \"silu\", the only supported activation, found "
            "\"gelu\"");
  EXPECT_NE(refusal("quantization_config", {{"bits", 4}}).find("use the original model"),
            std::string::npos);
}

TEST(ParseConfig, RefusesBrokenJsonAndDuplicateKeys) {
  const auto broken = message_of(Fault::file, [] { parse_config("{\n  \"vocab_size\": }", "c"); });
  EXPECT_TRUE(broken.starts_with("c:2:17: not valid JSON")) << broken;
  const auto twice = message_of(
      Fault::file, [] { parse_config("{\"vocab_size\": 1,\n \"vocab_size\": 2}", "c"); });
  EXPECT_TRUE(twice.starts_with("c:2:2: the key \"vocab_size\" appears twice")) << twice;
}

TEST(ConfigJson, IsReadBackToAnEqualConfig) {
  ModelConfig c;
  c.vocab = 1000;
  c.hidden = 96;
  c.intermediate = 130;
  c.layers = 2;
  c.heads = 6;
  c.kv_heads = 3;
  c.head_dim = 20;
  c.max_positions = 77;
  c.norm_eps = 0.1;
  c.rope_theta = 1234.5678;
  c.init_std = 1.0 / 3;
  for (const std::string& name : known_architectures()) {
    c.architecture = name;
    const bool qwen3 = name == "Qwen3ForCausalLM", llama_like = name == "LlamaForCausalLM";
    for (const bool on : {false, true}) {
      c.tied = on;
      c.qk_norm = qwen3;
      c.o_bias = on && (qwen3 || llama_like);
      c.qkv_bias = c.o_bias || name == "Qwen2ForCausalLM";
      c.mlp_bias = on && llama_like;
      c.sliding_window = on && !llama_like ? 16 : 0;
      c.rope_scaling = {};
      if (on) c.rope_scaling = {RopeScaling::Kind::llama3, 3, 1.25, 5, 99};
      c.dtype = on ? DType::bf16 : DType::f16;
      c.bos_id = on ? 5 : -1;
      c.eos_ids = on ? std::vector<int64_t>{6, 7} : std::vector<int64_t>{};
      EXPECT_EQ(parse_config(config_json(c), "c"), c) << config_json(c);
    }
    c.eos_ids = {9};
    c.rope_scaling = {};
    c.rope_scaling.kind = RopeScaling::Kind::linear;
    c.rope_scaling.factor = 4;
    EXPECT_EQ(parse_config(config_json(c), "c"), c) << config_json(c);
  }
}

TEST(ConfigJson, KeepsKeysThatItDoesNotKnow) {
  const ModelConfig c = parse(llama());
  const std::string like =
      R"({"pad_token_id": 7, "use_cache": false, "hidden_size": 1, "dtype": "float16",
          "layer_types": ["x"], "rope_parameters": {"rope_theta": 1}, "sliding_window": 3,
          "auto_map": {"AutoModel": "x.Y"}})";
  const auto out = nlohmann::json::parse(config_json(c, like));
  EXPECT_EQ(out["pad_token_id"], 7);
  EXPECT_EQ(out["use_cache"], false);
  EXPECT_EQ(parse_config(config_json(c, like), "c"), c);
  EXPECT_EQ(out.size(), nlohmann::json::parse(config_json(c)).size() + 1);
  EXPECT_EQ(config_json(c, "[1]"), config_json(c));
}

TEST(ConfigJson, RefusesWhatTheArchitectureHasNoKeyFor) {
  ModelConfig c = parse(llama());
  c.qk_norm = true;
  EXPECT_EQ(message_of(Fault::usage, [&] { config_json(c); }),
            "config: config.json of LlamaForCausalLM has no key for this qk_norm");
  c = parse(llama());
  c.sliding_window = 8;
  EXPECT_NE(message_of(Fault::usage, [&] { config_json(c); }).find("sliding_window"),
            std::string::npos);
  c = parse(llama());
  c.qkv_bias = true;
  EXPECT_NE(message_of(Fault::usage, [&] { config_json(c); }).find("o_bias"), std::string::npos);
}

TEST(CheckConfig, NamesTheFieldAsConfigJsonDoes) {
  ModelConfig c = parse(llama());
  EXPECT_NO_THROW(check_config(c));
  c.kv_heads = 3;
  EXPECT_EQ(message_of(Fault::usage, [&] { check_config(c); }),
            "config: num_key_value_heads: expected a divisor of num_attention_heads, which is 8, "
            "found 3");
}

}  // namespace
}  // namespace capstan
