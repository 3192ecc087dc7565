// merge_lora as a user meets it: what it merges into, what it proves, and what it leaves behind.

#include "base/checksum.h"
#include "checkpoint/manifest.h"
#include "lora_program.h"

namespace capstan::cli_test {
namespace {

class Merge : public Lora {
 protected:
  void train(const Words& more = {}) const {
    const Outcome o = run(finetune(more));
    ASSERT_EQ(o.code, 0) << o.err;
  }
  nlohmann::json json_of(const std::string& name) const {
    return nlohmann::json::parse(slurp(at(name)));
  }
  // Nothing of the name, nor of a half of it.
  void expect_nothing(const std::string& name) const {
    for (const auto& entry : fs::directory_iterator(folder.path()))
      EXPECT_EQ(entry.path().filename().string().find(name), std::string::npos) << entry.path();
  }
};

TEST_F(Merge, TheResultAnswersAsModelAndAdapterDid) {
  train({"--lora_mlp=true", "--lora_head=true"});
  const Outcome o = run({"merge_lora", "out/final", "--out_dir=whole"});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"its logits on 4 random prompts differ by", "(limit 0.0001 for f32)",
                       "the same after 4 of 4"});
  EXPECT_NEAR(loss_of("whole"), loss_of("out/final"), 1e-4);
  expect_holds(run({"merge_lora", "whole"}).err, {"there is nothing to merge"});
  EXPECT_EQ(run({"merge_lora", "out/final/"}).code, 0);
  EXPECT_TRUE(fs::exists(at("out/final-merged/model.safetensors")));
}

TEST_F(Merge, WritesACertificate) {
  train();
  ASSERT_EQ(run({"merge_lora", "out/final", "--out_dir=whole", "--prompt=Say 3"}).code, 0);
  EXPECT_NO_THROW(verify_checkpoint(at("whole")));
  EXPECT_TRUE(read_manifest(at("whole")).contains("merge_certificate.json"));
  const nlohmann::json c = json_of("whole/merge_certificate.json");
  EXPECT_EQ(c["adapter"], "out/final");
  EXPECT_EQ(c["adapter_sha256"], sha256_of_file(at("out/final/adapter_model.safetensors")));
  EXPECT_EQ(c["base"], "checkpoints/tiny/final");
  EXPECT_TRUE(c["quantize"].is_null());
  EXPECT_EQ(c["dtype"], "f32");
  EXPECT_EQ(c["prompts"], 5);
  EXPECT_EQ(c["random_prompts"], 4);
  EXPECT_EQ(c["same_next_token"], 5);
  EXPECT_LE(c["largest_difference"], c["allowed_difference"]);
}

TEST_F(Merge, AnAdapterOfAQuantizedBaseGoesIntoItsValues) {
  for (const char* kind : {"bnb.nf4", "bnb.fp4-dq", "bnb.int8-training"}) {
    SCOPED_TRACE(kind);
    train({std::string("--quantize=") + kind, "--lora_mlp=true", "--lora_head=true"});
    const Outcome o = run({"merge_lora", "out/final", "--out_dir=whole"});
    ASSERT_EQ(o.code, 0) << o.err;
    const std::string name = kind;
    expect_holds(o.err, {"the adapter was trained with the model in " + name +
                         ", so it is merged into the dequantized " + name.substr(4) +
                         " values, not into the weights of checkpoints/tiny/final"});
    EXPECT_EQ(json_of("whole/merge_certificate.json")["quantize"], name);
    EXPECT_NEAR(loss_of("whole"), loss_of("out/final"), 1e-5);
    EXPECT_NE(loss_of("out/final", {"--quantize=none"}), loss_of("out/final"));
  }
}

TEST_F(Merge, IntoTheOriginalWeightsWithAWarning) {
  train({"--quantize=bnb.nf4"});
  const Outcome o = run({"merge_lora", "out/final", "--out_dir=whole", "--quantize=none"});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"the adapter was trained with the model in bnb.nf4, but is merged into the "
                       "original weights"});
  EXPECT_TRUE(json_of("whole/merge_certificate.json")["quantize"].is_null());
  EXPECT_NEAR(loss_of("whole"), loss_of("out/final", {"--quantize=none"}), 1e-5);
}

TEST_F(Merge, ComparesOnGivenPrompts) {
  train();
  write("prompts.txt", "Say 4\r\n\nTell me \"why\".\n");
  const Outcome o = run({"merge_lora", "--prompt=[Say 3]", "--prompt", "What?", "out/final",
                         "--out_dir=whole", "--prompts=prompts.txt"});
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err,
               {"\"[Say 3]\": ", "\"What?\": ", "\"Say 4\": ", "Tell me ", "random prompt: 24",
                "the same next token", "4 given and 4 random prompts", "after 8 of 8"});
  const Words merge = {"merge_lora", "out/final", "--out_dir=other"};
  const auto with = [&](const Words& more) {
    Words words = merge;
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  expect_refused(4, with({"--prompts=none.txt"}), {"none.txt"});
  write("empty.txt", "\n\n");
  expect_refused(4, with({"--prompts=empty.txt"}), {"empty.txt: expected one prompt per line"});
  expect_refused(2, with({"--prompt=" + std::string(5000, 'x')}),
                 {"positions; give a shorter one"});
  expect_nothing("other");
}

// With an adapter that counts so much, attention goes to one token or to another by the weights'
// last bits, and three layers make more of it: bf16 cannot hold what the two computed.
TEST_F(Merge, WhatCannotBeCertifiedIsNotThere) {
  train_tiny({"--out_dir=checkpoints/deep", "--model.num_hidden_layers=3",
              "--train.max_seq_length=512", "--data.val_split_fraction=0"});
  ASSERT_EQ(run({"convert", "checkpoints/deep/final", "checkpoints/half", "--dtype=bf16"}).code, 0);
  Words words = finetune({"--lora_key=true", "--lora_mlp=true"});
  words[1] = "half";
  ASSERT_EQ(run(words).code, 0);
  ASSERT_EQ(run({"merge_lora", "out/final", "--out_dir=whole"}).code, 0);
  const std::string before = slurp(at("whole/model.safetensors"));

  nlohmann::json config = json_of("out/final/adapter_config.json");
  config["lora_alpha"] = 1e5;
  write("out/final/adapter_config.json", config.dump());
  fs::remove(at("out/final/MANIFEST.json"));
  expect_refused(
      4, {"merge_lora", "out/final", "--out_dir=new"},
      {"new: not written: the merged model's logits differ by", "convert its model to f32"});
  expect_nothing("new");
  expect_refused(4, {"merge_lora", "out/final", "--out_dir=whole"}, {"whole: not written"});
  EXPECT_EQ(slurp(at("whole/model.safetensors")) == before, true) << "the one before stays";
  EXPECT_NO_THROW(verify_checkpoint(at("whole")));
}

TEST_F(Merge, ReplacesNeitherOfTheTwo) {
  train();
  for (const char* out : {"--out_dir=out/final", "--out_dir=checkpoints/tiny/final"})
    expect_refused(2, {"merge_lora", "out/final", out}, {"expected another folder"});
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));
}

TEST_F(Merge, AnAdapterOfPeftHasNoRecipe) {
  train({"--quantize=bnb.nf4"});
  fs::create_directories(at("peft"));
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors"})
    fs::copy_file(at("out/final") / name, at("peft") / name);
  const Outcome o = run({"merge_lora", "peft", "--out_dir=whole", "--prompt=Say 3"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err.find("trained with"), std::string::npos) << o.err;
  EXPECT_TRUE(json_of("whole/merge_certificate.json")["quantize"].is_null());
  EXPECT_TRUE(fs::exists(at("whole/tokenizer.json"))) << "its model's";
  EXPECT_NEAR(loss_of("whole"), loss_of("out/final", {"--quantize=none"}), 1e-5);
  // Who trained it beside four bits can say so.
  const Outcome in_four = run({"merge_lora", "peft", "--out_dir=whole", "--quantize=bnb.nf4"});
  ASSERT_EQ(in_four.code, 0) << in_four.err;
  expect_holds(in_four.err, {"the adapter is merged into the dequantized nf4 values"});
  EXPECT_NEAR(loss_of("whole"), loss_of("out/final"), 1e-5);

  fs::copy_file(at("out/final/hyperparameters.yaml"), at("peft/hyperparameters.yaml"));
  EXPECT_NEAR(loss_of("peft"), loss_of("out/final"), 1e-6);
  write("peft/hyperparameters.yaml", "quantise: 4\n");
  expect_refused(4, {"merge_lora", "peft"},
                 {"hyperparameters.yaml:1:1", "should say how the adapter's base was quantized"});
}

}  // namespace
}  // namespace capstan::cli_test
