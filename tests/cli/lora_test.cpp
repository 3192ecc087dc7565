// Adapters as a user meets them: trained, and used beside their model.

#include "lora_program.h"

#include "checkpoint/manifest.h"
#include "checkpoint/training_state.h"

namespace capstan::cli_test {
namespace {

TEST_F(Lora, TrainsAnAdapterThatIsUsed) {
  const Outcome o = run(finetune({"--lora_mlp=true", "--lora_head=true"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {" trainable parameters, ", " frozen"});
  for (const char* name : {"adapter_config.json", "adapter_model.safetensors", "tokenizer.json",
                           "hyperparameters.yaml", "prompt_style.yaml", "MANIFEST.json"})
    EXPECT_TRUE(fs::exists(at("out/final") / name)) << name;
  EXPECT_FALSE(fs::exists(at("out/final/model.safetensors")));
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));
  EXPECT_LT(loss_of("out/final"), loss_of("tiny/final"));
  const Outcome used = run({"generate", "out/final", "--prompt=Say 3", "--max_new_tokens=3"});
  EXPECT_EQ(used.code, 0);
  EXPECT_EQ(used.err.find("is quantized to"), std::string::npos) << used.err;
}

TEST_F(Lora, OnATiedHeadIsRefusedBeforeTheTraining) {
  train_tiny({"--train.tie_embeddings=true", "--out_dir=tied"});
  Words words = finetune({"--lora_head=true"});
  words[1] = "tied/final";
  expect_refused(
      2, words,
      {"lora_head: final shares its output head with the embedding", "set lora_head false"});
  EXPECT_FALSE(fs::exists(at("out/final")));
  expect_refused(2, {"plan", "finetune", "Llama-3.2-1B", "--lora_head=true", "--memory=80GiB"},
                 {"lora_head: Llama-3.2-1B shares its output head with the embedding"});
  words.back() = "--lora_mlp=true";
  EXPECT_EQ(run(words).code, 0) << "other maps have adapters";
}

// An adapter that was trained beside quantized weights is used beside them.
TEST_F(Lora, ABaseIsQuantizedAsInTraining) {
  const Outcome o = run(finetune({"--quantize=bnb.nf4", "--lora_mlp=true"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const Words line = {"the model is quantized to bnb.nf4, as in the adapter's training"};
  const Words asked = {"--prompt=Say 3", "--max_new_tokens=3"};
  const Outcome generated = run({"generate", "out/final", asked[0], asked[1]});
  EXPECT_EQ(generated.code, 0);
  expect_holds(generated.err, line);
  const Outcome talked = run_with("Say 3\n\n", {"chat", "out/final", "--max_new_tokens=3"});
  EXPECT_EQ(talked.code, 0) << talked.err;
  expect_holds(talked.err, line);
  const Outcome evaluated =
      run({"evaluate", "out/final", "--data=data.jsonl", "--data.prompt_style=alpaca"});
  EXPECT_EQ(evaluated.code, 0);
  expect_holds(evaluated.err, line);

  const double as_trained = loss_of("out/final");
  EXPECT_EQ(loss_of("out/final", {"--quantize=nf4"}), as_trained);
  EXPECT_NE(loss_of("out/final", {"--quantize=none"}), as_trained);
  EXPECT_NE(loss_of("tiny/final", {"--quantize=bnb.nf4"}), loss_of("tiny/final"));
  expect_holds(run({"generate", "out/final", asked[0], asked[1], "--quantize=none"}).err,
               {"trained with the model in bnb.nf4, but is used with it in none"});
  expect_refused(2, {"generate", "out/final", "--quantize=q4"}, {"'q4' is not one of"});
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
  expect_holds(o.out, {"resumed from parts/step-000004"});
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

TEST_F(Lora, DoesNotGoOnBesideOtherWeights) {
  const auto with = [](const char* steps) {
    return finetune(
        {"--resume=auto", "--train.save_interval=2", std::string("--train.max_steps=") + steps});
  };
  ASSERT_EQ(run(with("4")).code, 0);
  fs::remove_all(at("out/final"));
  train_tiny(
      {"--out_dir=other", "--train.max_seq_length=512", "--data.val_split_fraction=0", "--seed=7"});
  fs::rename(at("checkpoints/tiny"), at("checkpoints/kept"));
  fs::create_directories(at("checkpoints/tiny"));
  fs::copy(at("other/final"), at("checkpoints/tiny/final"), fs::copy_options::recursive);
  expect_refused(2, with("6"),
                 {"resume: out/step-000002 was trained on other base weights than",
                  "start a new run with another --out_dir"});
  // The same weights in other files, with one beside them that is none of the model's.
  fs::remove_all(at("checkpoints/tiny"));
  ASSERT_EQ(
      run({"convert", "checkpoints/kept/final", "checkpoints/tiny/final", "--max_shard_size=2KB"})
          .code,
      0);
  fs::create_symlink("nowhere", at("checkpoints/tiny/final/pytorch_model.bin"));
  EXPECT_EQ(run(with("6")).code, 0);
}

// A sample whose token has a row of NaN in the frozen model: the adapters are good, and are kept.
TEST_F(Lora, TheStateBeforeALossThatIsNotFiniteIsSavedWhereOthersAreFinite) {
  const fs::path model = at("checkpoints/tiny/final/model.safetensors");
  std::string bytes = slurp(model);
  const auto header =
      nlohmann::json::parse(bytes.substr(8, *reinterpret_cast<const uint64_t*>(bytes.data())));
  const auto& embedding = header["model.embed_tokens.weight"];
  const size_t row =
      (embedding["data_offsets"][1].get<size_t>() - embedding["data_offsets"][0].get<size_t>()) /
      embedding["shape"][0].get<size_t>();
  const size_t first = 8 + *reinterpret_cast<const uint64_t*>(bytes.data()) +
                       embedding["data_offsets"][0].get<size_t>();
  for (size_t i = 0; i < row; ++i) bytes[first + 'Z' * row + i] = '\x7f';
  for (size_t i = 0; i + 1 < row; i += 2) bytes[first + 'Z' * row + i] = '\xff';
  write("checkpoints/tiny/final/model.safetensors", bytes);
  fs::remove(at("checkpoints/tiny/final/MANIFEST.json"));
  std::string jsonl = slurp(at("data.jsonl"));
  jsonl += nlohmann::json{{"instruction", "Z"}, {"output", "1"}}.dump() + "\n";
  write("data.jsonl", jsonl);
  const Words more = {"--data.val_split_fraction=0", "--train.epochs=1", "--train.max_steps=null",
                      "--train.global_batch_size=1", "--train.micro_batch_size=1"};
  const Outcome o = run(finetune(more));
  EXPECT_EQ(o.code, 2) << o.err;
  expect_holds(o.err,
               {": the loss is ", "data.jsonl:25", "train.on_nan skip continues without them",
                "The state after ", " of 25 steps is saved in out/step-0000",
                "--resume auto continues from it"});
  EXPECT_EQ(o.err.find("diverged"), std::string::npos) << o.err;
  Words skip = more;
  skip.insert(skip.end(), {"--train.on_nan=skip", "--resume=auto"});
  const Outcome rest = run(finetune(skip));
  EXPECT_EQ(rest.code, 0) << rest.err;
  expect_holds(rest.out, {"resumed from out/step-0000"});
  expect_holds(rest.err, {": skipped this step"});
}

TEST_F(Lora, AFinishedRunSaysHowItIsTrainedFurther) {
  const auto with = [](const char* interval, const char* steps, const char* resume) {
    return finetune({std::string("--train.save_interval=") + interval,
                     std::string("--train.max_steps=") + steps, std::string("--resume=") + resume});
  };
  ASSERT_EQ(run(with("2", "4", "false")).code, 0);
  expect_refused(2, with("2", "6", "true"),
                 {"resume: out/final is a finished run of 4 steps and has no optimizer "
                  "state. To train it further, --resume out/step-000002 continues after its 2 "
                  "steps"});
  const Outcome o = run(with("2", "6", "out/step-000002"));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(read_state(at("out/final")).step, 6);
  for (const char* name : {"out/step-000002", "out/step-000004"}) fs::remove_all(at(name));
  expect_refused(2, with("2", "8", "true"),
                 {"merge it (capstan merge_lora out/final)", "with another --out_dir"});
  // What it says works.
  ASSERT_EQ(run({"merge_lora", "out/final"}).code, 0);
  Words merged = with("2", "2", "false");
  merged[1] = "out/final-merged";
  merged.push_back("--out_dir=further");
  const Outcome further = run(merged);
  EXPECT_EQ(further.code, 0) << further.err;
}

// PEFT looks for the path alone.
TEST_F(Lora, TheAdapterNamesTheFolderThatWasFound) {
  ASSERT_EQ(run(finetune()).code, 0);
  EXPECT_EQ(nlohmann::json::parse(slurp(at("out/final/adapter_config.json")))
                .value("base_model_name_or_path", ""),
            "checkpoints/tiny/final");
}

TEST_F(Lora, AnAdapterCannotTieEmbeddings) {
  expect_refused(2, finetune({"--train.tie_embeddings=true"}),
                 {"train.tie_embeddings: final has a separate output head", "finetune_full"});
  EXPECT_EQ(run(finetune({"--train.tie_embeddings=false"})).code, 0);
}

TEST_F(Lora, AnAdapterIsNoModelToFineTune) {
  ASSERT_EQ(run(finetune()).code, 0);
  Words words = finetune({"--out_dir=again"});
  words[1] = "out/final";
  expect_refused(4, words, {"out/final: is an adapter", "capstan merge_lora"});
}

TEST_F(Lora, AnAdapterThatNamesNoBaseAsksForIt) {
  ASSERT_EQ(run(finetune()).code, 0);
  auto config = nlohmann::json::parse(slurp(at("out/final/adapter_config.json")));
  config["base_model_name_or_path"] = nullptr;
  write("out/final/adapter_config.json", config.dump());
  fs::remove(at("out/final/MANIFEST.json"));
  expect_refused(4, {"generate", "out/final"},
                 {"does not name its base model", "--base_model FOLDER"});
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
