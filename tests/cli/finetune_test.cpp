// Fine-tuning as a user meets it.

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "finetune_program.h"
#include "report/metrics.h"

namespace capstan::cli_test {
namespace {

TEST_F(Finetune, OneCommandFromACheckpointAndAJsonFileToAFolderOfHuggingFace) {
  const Outcome o = run(finetune({"--eval.interval=2", "--data.mask_prompt=true"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"trainable parameters", "28 training samples", "2 held out",
                       "the longest sequence has", "Verifying settings ...",
                       "Epoch 1 | iter 2 step 1 | loss train: ", "iter 4: val loss ",
                       "### Instruction:\nSay ", "Final evaluation | val loss: ", "Training Time",
                       "planned    measured", "report.html"});
  for (const char* name :
       {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json", "hyperparameters.yaml", "prompt_style.yaml", "MANIFEST.json"})
    EXPECT_TRUE(fs::exists(at("out/final") / name)) << name;
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));
  EXPECT_EQ(slurp(at("out/final/prompt_style.yaml")), "class_path: litgpt.prompts.Alpaca\n");
  for (const char* name : {"out/loss.svg", "out/report.html", "out/logs/csv/version_0/metrics.csv"})
    EXPECT_TRUE(fs::exists(at(name))) << name;
}

// It may take long, and who stops it then loses nothing. Here it fails: the one step was too large.
TEST_F(Finetune, TheModelIsSavedBeforeTheFinalValidation) {
  expect_refused(2, finetune({"--train.max_steps=1", "--optimizer.lr=2e19"}),
                 {"step 1: the validation loss is ", ": training diverged"});
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));
  EXPECT_TRUE(fs::exists(at("out/report.html")));
}

// The first step made weights that are finite, and no use: no sample has a finite loss with them.
TEST_F(Finetune, AStateThatHasDivergedIsNotRecommended) {
  const Words diverged = {
      "step 2: the loss is ",
      "Other samples do not give finite values either: training has diverged. Lower "
      "optimizer.lr, or set train.max_norm. No checkpoint is known to be good"};
  expect_refused(2, finetune({"--optimizer.lr=2e19"}), diverged);
  EXPECT_FALSE(fs::exists(at("out/step-000001")));
  // An interval saves it, and cannot know yet.
  expect_refused(2, finetune({"--optimizer.lr=2e19", "--train.save_interval=1"}), diverged);
}

TEST_F(Finetune, TheNewestGoodStateIsNamedWhereALaterOneHasDiverged) {
  const auto with = [&](const char* lr, const char* steps, const char* resume) {
    return finetune({"--train.save_interval=1", "--train.epochs=4", "--train.schedule=constant",
                     std::string("--optimizer.lr=") + lr, std::string("--train.max_steps=") + steps,
                     std::string("--resume=") + resume});
  };
  ASSERT_EQ(run(with("1e-3", "3", "false")).code, 0);
  fs::remove_all(at("out/final"));
  // Step 3 diverges, is saved, and step 4 finds out.
  expect_refused(2, with("2e19", "8", "auto"),
                 {"step 4: the ",
                  "The newest good checkpoint is out/step-000002; "
                  "--resume out/step-000002 continues from it"});
  const Outcome o = run(with("1e-3", "4", "out/step-000002"));
  EXPECT_EQ(o.code, 0) << o.err;
}

// Too large for f32 as it is: the first update makes everything infinite.
TEST_F(Finetune, WeightsThatAreNotFiniteAreNeverSaved) {
  const auto with = [&](const char* lr, const char* steps, const Words& more = {}) {
    Words words =
        finetune({"--train.save_interval=1", "--train.epochs=4", "--resume=auto",
                  std::string("--optimizer.lr=") + lr, std::string("--train.max_steps=") + steps});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (const char* precision : {"32-true", "bf16-true", "bf16-mixed", "16-true", "16-mixed"})
    for (const char* optimizer : {"AdamW", "AdamW8bit"}) {
      const std::string out = fmt::format("{}-{}", precision, optimizer);
      expect_refused(2,
                     with("1e38", "4",
                          {std::string("--precision=") + precision, "--train.on_nan=skip",
                           std::string("--optimizer=") + optimizer, "--out_dir=" + out}),
                     {"step 1: the update with learning rate 1e+38 made weights or moments "
                      "that are not finite. Lower optimizer.lr",
                      "No checkpoint is known to be good: start a new run"});
      for (const auto& entry : fs::directory_iterator(at(out)))
        EXPECT_EQ(entry.path().filename().string().find("step-"), std::string::npos) << out;
    }
  ASSERT_EQ(run(with("1e-3", "3")).code, 0);
  fs::remove_all(at("out/final"));
  expect_refused(2, with("3e38", "8"),
                 {"step 3: the update",
                  "The newest good checkpoint is out/step-000002; --resume "
                  "auto continues from it"});
  EXPECT_FALSE(fs::exists(at("out/step-000003")));
  const Outcome o = run(with("1e-3", "3"));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"resumed from out/step-000002"});
}

TEST_F(Finetune, SkippingEndsAfterAsManyStepsInARowAsAreAllowed) {
  const Words words = {"--optimizer.lr=2e19", "--train.on_nan=skip", "--train.epochs=5"};
  expect_refused(2, finetune(words),
                 {"step 2: the loss is ",
                  "step 11: skipped 10 steps in a row, the limit of "
                  "train.max_skipped. Other samples do not give finite values ",
                  "Lower optimizer.lr", "No checkpoint is known to be good"});
  Words fewer = words;
  fewer.push_back("--train.max_skipped=2");
  expect_refused(2, finetune(fewer), {"step 3: skipped 2 steps in a row"});
  Words more = words;
  more.insert(more.end(), {"--train.max_skipped=100", "--eval.final_validation=false"});
  EXPECT_EQ(run(finetune(more)).code, 0);
  expect_refused(2, finetune({"--train.max_skipped=0"}), {"train.max_skipped", "0"});
}

// Prompts that fill all positions leave nothing to be learned where they are masked.
TEST_F(Finetune, AStepWhoseLabelsAreAllMaskedIsToldOf) {
  std::string jsonl = nlohmann::json{{"instruction", "c"}, {"output", "d"}}.dump() + "\n";
  for (int i = 0; i < 3; ++i)
    jsonl += nlohmann::json{{"instruction", std::string(600, 'a')}, {"output", "b"}}.dump() + "\n";
  write("masked.jsonl", jsonl);
  const Outcome o = run(finetune({"--data.json_path=masked.jsonl", "--data.mask_prompt=true",
                                  "--data.val_split_fraction=0", "--train.global_batch_size=1",
                                  "--train.micro_batch_size=1", "--eval.max_new_tokens=null"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {": all labels are masked, so the step changes nothing"});
  int with_loss = 0;
  const auto rows = read_metrics(at("out/logs/csv/version_0/metrics.csv"));
  for (const MetricsRow& row : rows) with_loss += row.loss.has_value();
  EXPECT_EQ(rows.size(), 4u);
  EXPECT_EQ(with_loss, 1);
}

// The samples are cut to the model's 512 positions; what is shown would not be.
TEST_F(Finetune, AnExampleThatIsTooLongIsLeftOutWithAWarning) {
  write("long.jsonl",
        nlohmann::json{{"instruction", std::string(600, 'a')}, {"output", "b"}}.dump() + "\n" +
            nlohmann::json{{"instruction", "c"}, {"output", "d"}}.dump() + "\n");
  const Words words = {"--data.json_path=long.jsonl",    "--data.val_split_fraction=0",
                       "--train.global_batch_size=2",    "--train.micro_batch_size=1",
                       "--eval.initial_validation=true", "--data.mask_prompt=false"};
  const Outcome o = run(finetune(words));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"no text is generated during the run: the example's prompt has ",
                       "tokens, but the model has only 512 positions"});
}

TEST_F(Finetune, AFullDiskUnderTheLogStopsNothing) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  Words words = finetune();
  std::string line = std::string("cd ") + at(".").string() + " && " + CAPSTAN_PROGRAM;
  for (const std::string& word : words) line += " '" + word + "'";
  EXPECT_EQ(std::system((line + " >/dev/full 2>&1").c_str()), 0);
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));
}

TEST_F(Finetune, ASecondRunFindsTheTokensOfTheFirst) {
  EXPECT_EQ(run(finetune()).out.find("token cache"), std::string::npos);
  expect_holds(run(finetune({"--out_dir=again"})).out, {"(from the token cache)"});
}

TEST_F(Finetune, PrintConfigTellsWhereEachValueCameFrom) {
  write("r.yaml", "train:\n  epochs: 2\n");
  const Outcome o = run(finetune({"--config=r.yaml", "--print_config"}));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out,
               {"checkpoint_dir: tiny/final", "# command line", "# default", "num_workers: 4"});
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(Finetune, KeysAreTakenInEveryFormBesideTheFolder) {
  const Outcome o = run({"finetune_full", "--data.init_args.json_path", "data.jsonl", "tiny/final",
                         "--optimizer.init_args.lr", "0.002", "--print_config"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"checkpoint_dir: tiny/final", "json_path: data.jsonl", "lr: 0.002"});
  expect_refused(2, finetune({"--train.micro_batchsize", "4"}),
                 {"did you mean train.micro_batch_size?"});
  expect_refused(4, {"finetune_full", "r.yaml", "--data.json_path=data.jsonl"},
                 {"pass a recipe with --config r.yaml"});
  expect_refused(4, {"generate", "checkpoints/tiny"}, {"its model is checkpoints/tiny/final"});
}

TEST_F(Finetune, AFlippedBitIsFoundBeforeTheModelIsUsed) {
  std::string bytes = slurp(at("checkpoints/tiny/final/model.safetensors"));
  bytes[bytes.size() - 5] ^= 1;
  write("checkpoints/tiny/final/model.safetensors", bytes);
  for (const Words& words : {Words{"generate", "tiny/final"}, finetune(),
                             Words{"evaluate", "tiny/final", "--data=text.txt"}})
    expect_refused(4, words, {"model.safetensors", "MANIFEST.json"});
}

TEST_F(Finetune, WhatDecidesNothingHereStaysInTheFilesOfTheModel) {
  const fs::path base = at("checkpoints/tiny/final");
  auto config = nlohmann::json::parse(slurp(base / "config.json"));
  config.update({{"pad_token_id", 2},
                 {"use_cache", false},
                 {"of_others", {{"a", 1}}},
                 {"rope_parameters", nullptr}});
  write("checkpoints/tiny/final/config.json", config.dump());
  const nlohmann::json generation = {
      {"temperature", 0.6}, {"do_sample", true}, {"pad_token_id", 2}};
  write("checkpoints/tiny/final/generation_config.json", generation.dump());
  fs::remove(base / "MANIFEST.json");
  ASSERT_EQ(run(finetune()).code, 0);
  Words lora = finetune({"--out_dir=adapter"});
  lora[0] = "finetune_lora";
  ASSERT_EQ(run(lora).code, 0);
  const Outcome o = run({"merge_lora", "adapter/final", "--out_dir=merged"});
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_FALSE(fs::exists(at("adapter/final/generation_config.json")));
  for (const char* folder_made : {"out/final", "merged"}) {
    const auto now = nlohmann::json::parse(slurp(at(folder_made) / "config.json"));
    EXPECT_EQ(now["pad_token_id"], 2) << folder_made;
    EXPECT_EQ(now["use_cache"], false) << folder_made;
    EXPECT_EQ(now["of_others"]["a"], 1) << folder_made;
    EXPECT_FALSE(now.contains("rope_parameters")) << folder_made;
    EXPECT_EQ(nlohmann::json::parse(slurp(at(folder_made) / "generation_config.json")), generation);
  }
}

TEST_F(Finetune, ThereMustBeSomethingToLearn) {
  fs::create_directory(at("both"));
  nlohmann::json good, masked;
  for (int i = 0; i < 8; ++i) {
    good.push_back(record(i));
    masked.push_back({{"instruction", std::string(300, 'x')}, {"output", "y"}});
  }
  const Words more = {"--data.json_path=both", "--data.mask_prompt=true", "--eval.interval=1",
                      "--train.max_seq_length=256"};
  write("both/train.json", masked.dump());
  write("both/val.json", good.dump());
  expect_refused(4, finetune(more), {"there is nothing to learn", "train.max_seq_length"});
  write("both/train.json", good.dump());
  write("both/val.json", masked.dump());
  const Outcome o = run(finetune(more));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"every token of the validation data (8 samples) is masked or truncated"});
  EXPECT_EQ(o.out.find("val loss"), std::string::npos) << o.out;
}

TEST_F(Finetune, BadDataAreRefusedWithTheirLine) {
  write("bad.jsonl",
        "{\"instruction\": \"a\", \"output\": \"b\"}\n{\"instruction\": \"a\"}\nnope\n");
  expect_refused(4, finetune({"--data.json_path=bad.jsonl"}),
                 {"bad.jsonl:2", "output", "bad.jsonl:3"});
  write("empty.json", "[]");
  expect_refused(4, finetune({"--data.json_path=empty.json"}), {"empty.json"});
  write("latin.jsonl", "{\"instruction\": \"caf\xe9\", \"output\": \"b\"}\n");
  expect_refused(4, finetune({"--data.json_path=latin.jsonl"}), {"latin.jsonl:1", "UTF-8"});
  expect_refused(4, finetune({"--data.json_path=none.json"}), {"none.json"});
  expect_refused(2, {"finetune_full", "tiny/final"}, {"--data.json_path PATH"});
  expect_refused(2, {"finetune_full"}, {"checkpoint_dir: expected the folder of a model"});
}

TEST_F(Finetune, ANamedSetThatIsNotThereSaysWhereToGetIt) {
  expect_refused(4, {"finetune_full", "tiny/final", "--data=Alpaca2k"},
                 {"Alpaca2k", "data/alpaca2k", "--data.json_path"});
  fs::create_directories(at("data"));
  fs::copy(at("data.jsonl"), at("data/alpaca2k.jsonl"));
  EXPECT_EQ(
      run({"finetune_full", "tiny/final", "--data=litgpt.data.Alpaca2k", "--train.max_steps=1",
           "--eval.final_validation=false", "--eval.max_new_tokens=null"})
          .code,
      0);
}

TEST_F(Finetune, RecordsMayComeFromStandardInput) {
  const auto piped = [&](const Words& more) {
    Words words = finetune({"--out_dir=piped", "--data=JSON", "--data.json_path=-"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Outcome none = run(piped({}));
  EXPECT_EQ(none.code, 2);
  expect_holds(none.err, {"nothing came from there"});
  const Outcome o = run_with(slurp(at("data.jsonl")), piped({"--train.save_interval=1"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"of records from standard input, kept in piped/stdin.jsonl"});
  EXPECT_EQ(slurp(at("piped/stdin.jsonl")), slurp(at("data.jsonl")));
  ASSERT_EQ(run(finetune({"--out_dir=file", "--train.save_interval=1"})).code, 0);
  EXPECT_EQ(slurp(at("piped/final/model.safetensors")) == slurp(at("file/final/model.safetensors")),
            true);
  const Outcome again = run(piped({"--resume=auto"}));
  EXPECT_EQ(again.code, 0) << again.err;
  expect_holds(again.out, {"going on with piped/stdin.jsonl"});
  const std::string records = slurp(at("data.jsonl")), more = records + records;
  const Outcome other = run_with(more, piped({"--resume=auto"}));
  EXPECT_EQ(other.code, 2);
  expect_holds(other.err, {"has other records", "</dev/null"});
  EXPECT_EQ(slurp(at("piped/stdin.jsonl")), records);
  EXPECT_EQ(run_with(more, piped({})).code, 0);  // a new run
  EXPECT_EQ(slurp(at("piped/stdin-1.jsonl")), records);
}

TEST_F(Finetune, LogsToSeveralPlaces) {
  ASSERT_EQ(run(finetune({"--logger_name=[jsonl, tensorboard]"})).code, 0);
  EXPECT_TRUE(fs::exists(at("out/logs/jsonl/version_0/metrics.jsonl")));
  EXPECT_TRUE(fs::exists(at("out/logs/tensorboard/version_0")));
}

TEST_F(Finetune, ConvertWritesOtherTypesAndShards) {
  ASSERT_EQ(run({"convert", "tiny/final", "half", "--dtype=bf16", "--max_shard_size=10KB"}).code,
            0);
  EXPECT_TRUE(fs::exists(at("half/model.safetensors.index.json")));
  EXPECT_EQ(read_config(at("half")).dtype, DType::bf16);
  ASSERT_EQ(run({"convert", "half", "one", "--dtype=f32", "--max_shard_size=none"}).code, 0);
  EXPECT_TRUE(fs::exists(at("one/model.safetensors")));
  EXPECT_EQ(run({"generate", "one", "--max_new_tokens=2"}).code, 0);
  expect_refused(2, {"convert", "half", "x", "--dtype=f64"}, {"--dtype"});
  expect_refused(4, {"convert", "none", "x"}, {"none"});
}

TEST_F(Finetune, APickleIsNeverExecuted) {
  const fs::path pickles = fs::path(CAPSTAN_SOURCE_DIR) / "tests/checkpoint/pickles";
  fs::copy(at("checkpoints/tiny/final"), at("bad"), fs::copy_options::recursive);
  fs::remove(at("bad/model.safetensors"));
  fs::remove(at("bad/MANIFEST.json"));
  for (const auto& entry : fs::recursive_directory_iterator(pickles)) {
    if (entry.path().string().find("system") == std::string::npos) continue;
    fs::copy_file(entry.path(), at("bad/pytorch_model.bin"), fs::copy_options::overwrite_existing);
    expect_refused(4, {"generate", "bad"}, {"pytorch_model.bin", "executes nothing"});
    return;
  }
  FAIL() << "no hostile pickle among the golden files";
}

}  // namespace
}  // namespace capstan::cli_test
