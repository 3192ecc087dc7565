#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "checkpoint/adapter.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

using nlohmann::json;

json plain() {
  return {{"peft_type", "LORA"}, {"target_modules", {"q_proj", "v_proj"}}};
}

AdapterConfig parsed(const json& config) {
  return parse_adapter_config(config.dump(), "a.json");
}

// The message for the plain config with one key changed.
std::string refusal(const char* key, const json& value) {
  json config = plain();
  config[key] = value;
  return message_of(Fault::file, [&] { parsed(config); });
}

bool same(const LoraOptions& a, const LoraOptions& b) {
  return a.r == b.r && a.alpha == b.alpha && a.dropout == b.dropout && a.rslora == b.rslora &&
         a.query == b.query && a.key == b.key && a.value == b.value &&
         a.projection == b.projection && a.mlp == b.mlp && a.head == b.head;
}

TEST(AdapterConfig, ReadsWhatItWrites) {
  for (int bits = 1; bits < 64; ++bits) {
    const AdapterConfig config{.lora = {.r = bits,
                                        .alpha = bits / 3.0,
                                        .dropout = bits / 64.0,
                                        .rslora = bits % 2 == 0,
                                        .query = (bits & 1) != 0,
                                        .key = (bits & 2) != 0,
                                        .value = (bits & 4) != 0,
                                        .projection = (bits & 8) != 0,
                                        .mlp = (bits & 16) != 0,
                                        .head = (bits & 32) != 0},
                               .base = "models/base \"" + std::to_string(bits) + "\""};
    const AdapterConfig back = parse_adapter_config(adapter_config_json(config), "a.json");
    EXPECT_TRUE(same(back.lora, config.lora)) << adapter_config_json(config);
    EXPECT_EQ(back.base, config.base);
  }
}

TEST(AdapterConfig, IsWrittenAsPeftReadsIt) {
  AdapterConfig config;
  config.lora.mlp = true;
  json found = json::parse(adapter_config_json(config));
  EXPECT_EQ(found["peft_type"], "LORA");
  EXPECT_EQ(found["task_type"], "CAUSAL_LM");
  EXPECT_EQ(found["inference_mode"], true);
  EXPECT_EQ(found["bias"], "none");
  EXPECT_EQ(found["base_model_name_or_path"], nullptr);
  EXPECT_TRUE(found["lora_alpha"].is_number_integer());
  EXPECT_EQ(found["target_modules"],
            json({"q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"}));
  // LoraConfig of PEFT 0.13 takes no others.
  const std::set<std::string> known = {"alpha_pattern",
                                       "auto_mapping",
                                       "base_model_name_or_path",
                                       "bias",
                                       "fan_in_fan_out",
                                       "inference_mode",
                                       "init_lora_weights",
                                       "layer_replication",
                                       "layers_pattern",
                                       "loftq_config",
                                       "layers_to_transform",
                                       "lora_alpha",
                                       "lora_dropout",
                                       "megatron_core",
                                       "megatron_config",
                                       "modules_to_save",
                                       "peft_type",
                                       "r",
                                       "rank_pattern",
                                       "revision",
                                       "target_modules",
                                       "task_type",
                                       "use_dora",
                                       "use_rslora"};
  for (const auto& [key, _] : found.items()) EXPECT_TRUE(known.contains(key)) << key;
  config.base = "bytes \xff of a folder";
  EXPECT_NO_THROW(parse_adapter_config(adapter_config_json(config), "a.json"));
}

TEST(AdapterConfig, MissingKeysHavePeftsDefaults) {
  const AdapterConfig config = parsed(plain());
  EXPECT_TRUE(same(config.lora, {.r = 8, .alpha = 8, .dropout = 0}));
  EXPECT_EQ(config.base, "");
}

TEST(AdapterConfig, AllLinearLeavesTheHeadOut) {
  json config = plain();
  config["target_modules"] = "all-linear";
  const LoraOptions lora = parsed(config).lora;
  EXPECT_TRUE(lora.query && lora.key && lora.value && lora.projection && lora.mlp);
  EXPECT_FALSE(lora.head);
}

TEST(AdapterConfig, RefusesWhatWouldBeAnotherModel) {
  const std::vector<std::pair<const char*, json>> others = {{"peft_type", "IA3"},
                                                            {"peft_type", nullptr},
                                                            {"task_type", "SEQ_CLS"},
                                                            {"bias", "lora_only"},
                                                            {"use_dora", true},
                                                            {"rank_pattern", {{"q_proj", 4}}},
                                                            {"alpha_pattern", {{"q_proj", 4}}},
                                                            {"modules_to_save", {"lm_head"}},
                                                            {"layers_to_transform", {0, 1}},
                                                            {"layers_to_transform", 0},
                                                            {"fan_in_fan_out", true},
                                                            {"layer_replication", {{0, 2}}},
                                                            {"lora_bias", true},
                                                            {"exclude_modules", {"v_proj"}},
                                                            {"trainable_token_indices", {1}},
                                                            {"target_parameters", {"weight"}},
                                                            {"alora_invocation_tokens", {1, 2}},
                                                            {"use_qalora", true},
                                                            {"init_lora_weights", "pissa"},
                                                            {"init_lora_weights", "loftq"},
                                                            {"init_lora_weights", "olora"},
                                                            {"a_key_of_the_future", "on"}};
  for (const auto& [key, value] : others) {
    const std::string message = refusal(key, value);
    EXPECT_EQ(message.rfind("a.json:1:", 0), 0U) << message;
    for (const char* part : {key, "expected", "found", "merge_and_unload()"})
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  EXPECT_EQ(refusal("use_dora", true),
            "a.json:1:58: use_dora: expected false, found true; Capstan reads plain LoRA of a "
            "causal language model: merge this adapter into its base with PEFT's "
            "merge_and_unload() and use the merged model");
}

TEST(AdapterConfig, RefusesTargetsThatTheOptionsCannotName) {
  for (const json& targets : std::vector<json>{json("q_proj"),
                                               json(".*q_proj"),
                                               json::array(),
                                               json(nullptr),
                                               json(3),
                                               {"q_proj", 3},
                                               {"embed_tokens"},
                                               {"gate_proj"},
                                               {"gate_proj", "up_proj"},
                                               {"model.layers.0.self_attn.q_proj"}}) {
    const std::string message = refusal("target_modules", targets);
    EXPECT_EQ(message.rfind("a.json:1:21: target_modules: expected ", 0), 0U) << message;
  }
  EXPECT_NE(refusal("target_modules", {"gate_proj", "down_proj"})
                .find("expected gate_proj, up_proj and down_proj together or none of them, found "
                      "no up_proj; merge"),
            std::string::npos);
}

TEST(AdapterConfig, RefusesValuesOfOtherKinds) {
  const std::vector<std::pair<const char*, json>> others = {{"r", 0},
                                                            {"r", -1},
                                                            {"r", 1.5},
                                                            {"r", "8"},
                                                            {"r", 1 << 20},
                                                            {"lora_alpha", "16"},
                                                            {"lora_dropout", 1},
                                                            {"lora_dropout", -0.1},
                                                            {"lora_dropout", "0"},
                                                            {"use_rslora", 1},
                                                            {"base_model_name_or_path", 3}};
  for (const auto& [key, value] : others) {
    const std::string message = refusal(key, value);
    EXPECT_NE(message.find(std::string(key) + ": expected "), std::string::npos) << message;
  }
  for (const char* text : {"[]", "{", "", "3"})
    EXPECT_EQ(message_of(Fault::file, [&] { parse_adapter_config(text, "a.json"); })
                  .rfind("a.json:1:", 0),
              0U);
}

TEST(AdapterConfig, AFolderIsAnAdaptersByItsConfig) {
  TempFolder folder;
  EXPECT_FALSE(is_adapter(folder.path()));
  EXPECT_FALSE(is_adapter(folder.path() / "none"));
  EXPECT_NE(message_of(Fault::file, [&] { read_adapter_config(folder.path()); })
                .find("adapter_config.json"),
            std::string::npos);
}

}  // namespace
}  // namespace capstan
