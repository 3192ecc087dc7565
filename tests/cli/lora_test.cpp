// Adapters as a user meets them: train, use unmerged, merge.

#include <nlohmann/json.hpp>

#include "checkpoint/manifest.h"
#include "program.h"

namespace capstan::cli_test {
namespace {

class Lora : public Cli {
 protected:
  Lora() {
    std::string jsonl;
    for (int i = 0; i < 24; ++i)
      jsonl += nlohmann::json{{"instruction", "Say " + std::to_string(i)},
                              {"output", std::to_string(i * i)}}
                   .dump() +
               "\n";
    write("data.jsonl", jsonl);
    train_tiny({"--out_dir=checkpoints/tiny", "--train.max_seq_length=512",
                "--data.val_split_fraction=0"});
  }
  static Words finetune(const Words& more = {}) {
    Words words = {"finetune",
                   "tiny/final",
                   "--data=JSON",
                   "--data.json_path=data.jsonl",
                   "--train.max_steps=6",
                   "--train.global_batch_size=4",
                   "--train.micro_batch_size=2",
                   "--train.lr_warmup_steps=0",
                   "--optimizer.lr=0.01",
                   "--eval.max_new_tokens=null",
                   "--out_dir=out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  double loss_of(const std::string& model, const Words& more = {}) const {
    Words words = {"evaluate", model, "--data=data.jsonl", "--data.prompt_style=alpaca", "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out, nullptr, false).value("loss", -1.0);
  }
};

TEST_F(Lora, TrainsAnAdapterThatIsUsedAndMerged) {
  const Outcome o = run(finetune({"--lora_mlp=true", "--lora_head=true"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {" trainable parameters, ", " frozen"});
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json",
                           "hyperparameters.yaml", "prompt_style.yaml", "MANIFEST.json"})
    EXPECT_TRUE(fs::exists(at("out/final") / name)) << name;
  EXPECT_FALSE(fs::exists(at("out/final/model.safetensors")));
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));

  const double before = loss_of("tiny/final"), after = loss_of("out/final");
  EXPECT_LT(after, before);
  EXPECT_EQ(run({"generate", "out/final", "--prompt=Say 3", "--max_new_tokens=3"}).code, 0);
  const Outcome merged = run({"merge_lora", "out/final", "--out_dir=whole"});
  ASSERT_EQ(merged.code, 0) << merged.err;
  expect_holds(merged.err, {"its logits on 4 random prompts differ by"});
  EXPECT_NEAR(loss_of("whole"), after, 1e-4);
  expect_holds(run({"merge_lora", "whole"}).err, {"nothing is left to merge"});
}

TEST_F(Lora, ResumesBitForBitWithDropout) {
  const Words more = {"--lora_dropout=0.2", "--train.save_interval=2", "--resume=auto"};
  const auto with = [&](const char* out) {
    Words words = finetune(more);
    words.push_back(std::string("--out_dir=") + out);
    return words;
  };
  ASSERT_EQ(run(with("whole")).code, 0);
  ASSERT_EQ(run(with("parts")).code, 0);
  // As if it had been killed after step 4.
  fs::remove_all(at("parts/final"));
  const Outcome o = run(with("parts"));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"resumed from parts/step-000004"});
  EXPECT_TRUE(slurp(at("parts/final/adapter_model.safetensors")) ==
              slurp(at("whole/final/adapter_model.safetensors")));
}

TEST_F(Lora, ABaseInFourBitsTakesLessMemory) {
  const auto weights = [&](const Words& more) {
    Words words = finetune(more);
    words[0] = "plan";
    words[1] = "--checkpoint_dir=tiny/final";
    words.insert(words.begin() + 1, {"--command=finetune", "--json"});
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return nlohmann::json::parse(o.out)["memory"]["by_category"]["weights"].get<int64_t>();
  };
  EXPECT_LT(weights({"--quantize=bnb.nf4"}), weights({}));
  for (const char* kind : {"bnb.nf4", "bnb.nf4-dq", "bnb.fp4", "bnb.int8-training"}) {
    const Outcome o = run(finetune({std::string("--quantize=") + kind, "--out_dir=q"}));
    EXPECT_EQ(o.code, 0) << kind << o.err;
  }
}

TEST_F(Lora, AnAdapterWithoutItsBaseSaysHowToNameIt) {
  ASSERT_EQ(run(finetune()).code, 0);
  fs::rename(at("checkpoints/tiny"), at("elsewhere"));
  expect_refused(4, {"generate", "out/final"}, {"tiny/final", "--base_model FOLDER"});
  EXPECT_EQ(
      run({"generate", "out/final", "--base_model=elsewhere/final", "--max_new_tokens=2"}).code, 0);
}

TEST_F(Lora, ARecipeOfTheLabRunsUnchanged) {
  const fs::path recipes = fs::path(CAPSTAN_SOURCE_DIR) / ".." / "shared" / "recipes";
  if (!fs::exists(recipes)) GTEST_SKIP() << "no recipes beside the project";
  fs::create_directories(at("data"));
  fs::copy(at("data.jsonl"), at("data/alpaca2k.jsonl"));
  for (const char* name :
       {"checkpoints/TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T",
        "checkpoints/openlm-research/open_llama_3b", "checkpoints/openlm-research/open_llama_7b",
        "checkpoints/openlm-research/open_llama_13b"}) {
    fs::create_directories(at(name).parent_path());
    fs::copy(at("checkpoints/tiny/final"), at(name), fs::copy_options::recursive);
  }
  for (const auto& entry : fs::directory_iterator(recipes)) {
    const bool lora = entry.path().string().find("lora") != std::string::npos;
    Words words = {lora ? "finetune" : "finetune_full", "--config", entry.path().string()};
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << entry.path() << o.err;
    if (!lora) continue;
    words.insert(words.end(), {"--quantize", "bnb.nf4"});
    EXPECT_EQ(run(words).code, 0) << entry.path();
  }
  EXPECT_TRUE(fs::exists(at("out/finetune/lora-open-llama-7b/final/adapter_model.safetensors")));
  EXPECT_TRUE(fs::exists(at("out/finetune/full-open-llama-13b/final/model.safetensors")));
  for (const Words& lab : {Words{"tiny-llama-full.yaml", "--train.global_batch_size", "32",
                                 "--train.micro_batch_size", "8"},
                           Words{"tiny-llama-full.yaml", "--train.global_batch_size", "32",
                                 "--train.micro_batch_size", "8", "--precision", "bf16-true"},
                           Words{"open-llama-13b-full.yaml", "--train.global_batch_size", "1",
                                 "--train.micro_batch_size", "1", "--precision", "bf16-true",
                                 "--optimizer", "SGD", "--train.max_steps", "25"}}) {
    Words words = {"finetune_full", "--config", (recipes / lab[0]).string()};
    words.insert(words.end(), lab.begin() + 1, lab.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << lab[0] << o.err;
  }
}

}  // namespace
}  // namespace capstan::cli_test
