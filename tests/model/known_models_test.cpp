#include "model/known_models.h"

#include <gtest/gtest.h>

#include "model/spec.h"

namespace capstan {
namespace {

int64_t parameters(const char* name) {
  const auto config = known_model(name);
  return config ? make_spec(*config).parameter_count() : -1;
}

// The counts that the models' publishers or their weight files state.
TEST(KnownModels, HaveThePublishedParameterCounts) {
  EXPECT_EQ(parameters("TinyLlama-1.1B-intermediate-step-1431k-3T"), 1'100'048'384);
  EXPECT_EQ(parameters("open_llama_3b"), 3'426'473'600);
  EXPECT_EQ(parameters("open_llama_7b"), 6'738'415'616);
  EXPECT_EQ(parameters("open_llama_13b"), 13'015'864'320);
  EXPECT_EQ(parameters("Llama-2-7b-hf"), 6'738'415'616);
  EXPECT_EQ(parameters("Llama-2-70b-chat-hf"), 68'976'648'192);
  EXPECT_EQ(parameters("Meta-Llama-3-8B"), 8'030'261'248);
  EXPECT_EQ(parameters("Llama-3.1-70B-Instruct"), 70'553'706'496);
  EXPECT_EQ(parameters("Llama-3.1-405B"), 405'853'388'800);
  EXPECT_EQ(parameters("Llama-3.2-1B"), 1'235'814'400);
  EXPECT_EQ(parameters("Llama-3.2-3B-Instruct"), 3'212'749'824);
  EXPECT_EQ(parameters("Mistral-7B-v0.1"), 7'241'732'096);
  EXPECT_EQ(parameters("Mistral-7B-Instruct-v0.3"), 7'248'023'552);
  EXPECT_EQ(parameters("Qwen2.5-0.5B"), 494'032'768);
  EXPECT_EQ(parameters("Qwen2.5-7B-Instruct"), 7'615'616'512);
  EXPECT_EQ(parameters("Qwen2.5-72B"), 72'706'203'648);
  EXPECT_EQ(parameters("Qwen3-0.6B"), 596'049'920);
  EXPECT_EQ(parameters("Qwen3-8B"), 8'190'735'360);
  EXPECT_EQ(parameters("Qwen3-32B"), 32'762'123'264);
}

TEST(KnownModels, AreFoundByTheEndOfAPathWhateverTheCase) {
  EXPECT_EQ(known_model("checkpoints/openlm-research/OPEN_LLAMA_7B/"),
            known_model("open_llama_7b"));
  EXPECT_EQ(known_model("Llama-3.1-8B")->rope_scaling.factor, 8);
  EXPECT_NE(known_model("Mistral-7B-v0.1"), known_model("Mistral-7B-v0.3"));
  EXPECT_FALSE(known_model("Qwen2.5-7Bee"));
  EXPECT_FALSE(known_model("open_llama"));
  EXPECT_FALSE(known_model(""));
}

TEST(KnownModels, AreConfigsThatHuggingFaceFilesCanHold) {
  for (const std::string_view name : known_model_names()) {
    const auto config = known_model(name);
    ASSERT_TRUE(config) << name;
    EXPECT_NO_THROW(check_config(*config)) << name;
    EXPECT_EQ(parse_config(config_json(*config), "x"), *config) << name;
  }
}

}  // namespace
}  // namespace capstan
