#include "program.h"

namespace capstan::cli_test {
namespace {

TEST_F(Cli, WithoutACommandTellsTheCommandsAndExamples) {
  for (const Words& words : {Words{}, Words{"help"}, Words{"--help"}, Words{"-h"}}) {
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0);
    expect_holds(o.out, {"usage: capstan", "pretrain", "generate", "demo",
                         "examples:", "capstan finetune_full --config"});
    EXPECT_EQ(o.err, "");
  }
}

TEST_F(Cli, TellsItsVersion) {
  const Outcome o = run({"--version"});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out.rfind("capstan ", 0), 0u) << o.out;
}

TEST_F(Cli, HelpIsGivenWhereverItIsAskedFor) {
  for (const Words& words :
       {Words{"pretrain", "--help"}, Words{"pretrain", "--seed", "x", "--nonsense", "-h"},
        Words{"pretrain", "--help", "--train.max_steps"}}) {
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {"Usage: capstan pretrain", "--train.max_steps", "[2000]",
                         "(constant|linear|cosine)"});
  }
  const Outcome o = run({"generate", "--help"});
  EXPECT_EQ(o.code, 0);
  expect_holds(o.out, {"checkpoint_dir", "--prompt", "--temperature"});
}

TEST_F(Cli, AnUnknownCommandListsThem) {
  expect_refused(2, {"trian"},
                 {"error: 'trian' is not a command",
                  "finetune_full, finetune, finetune_lora, pretrain, generate, chat"});
}

TEST_F(Cli, LitgptsOtherCommandsAndSpellingsGetAHint) {
  expect_refused(2, {"download"}, {"expected the name of a model", "capstan download --list"});
  expect_refused(2, {"convert_to_litgpt"}, {"Hugging Face folders need no conversion"});
  expect_refused(2, {"finetune_adapter_v2"}, {"capstan finetune"});
  expect_refused(2, {"pretrian"}, {"'pretrian' is not a command (did you mean pretrain?)"});
  const Outcome lora = run({"finetune", "lora", "model", "--data.json_path=text.txt"});
  EXPECT_EQ(lora.code, 2);
  expect_holds(lora.err, {"'lora': is part of a command's name here: capstan finetune_lora"});
  EXPECT_EQ(lora.err.find("'model'"), std::string::npos) << "the model is not one word too many";
  expect_refused(2, {"finetune", "full", "model"}, {"capstan finetune_full"});
}

TEST_F(Cli, AnUnknownOptionNamesTheNearest) {
  expect_refused(2, {"pretrain", "--train.max_step", "3"},
                 {"train.max_step: no such key (did you mean train.max_steps?)"});
  expect_refused(2, {"pretrain", "--lr=1"}, {"did you mean optimizer.lr?"});
  expect_refused(2, {"generate", "x", "--promt", "y"},
                 {"--promt: no such option (did you mean --prompt?)"});
}

TEST_F(Cli, AllErrorsOfACommandLineAreToldAtOnce) {
  write("r.yaml", "seed: x\ntrain:\n  max_stepz: 1\n");
  expect_refused(2,
                 {"pretrain", "model", "word", "--config", "r.yaml", "--optimizer.lr", "-1",
                  "--train.max_steps", "0", "--nonsense=1", "--out_dir"},
                 {"error: 'word': expected --key value\n", "       out_dir: expected a value\n",
                  "       r.yaml:1:1: seed: expected a whole number, 0 or more, found 'x'\n",
                  "       r.yaml:3:3: train.max_stepz: no such key",
                  "       optimizer.lr: expected a number above 0, found '-1'\n",
                  "       train.max_steps: expected a whole number above 0, found '0'\n",
                  "       nonsense: no such key"});
}

TEST_F(Cli, MissingFilesAreToldWithEverythingElse) {
  const Words words = {"finetune_full", "--checkpoint_dir=checkpoints/none",
                       "--data.json_path=none.json"};
  const Outcome files = run(words);
  EXPECT_EQ(files.code, 4) << files.err;
  expect_holds(files.err, {"error: checkpoints/none: no such folder; give a checkpoint folder",
                           "       none.json: no such file or folder"});
  EXPECT_EQ(files.err.find("checkpoints/checkpoints"), std::string::npos);
  Words more = words;
  more.emplace_back("--seed=x");
  expect_refused(2, more, {"seed: expected", "checkpoints/none: no such folder", "none.json: no"});
  const Outcome pre = run({"pretrain", "pythia-14m", "--tokenizer_dir=t", "--data=TinyStories"});
  EXPECT_EQ(pre.code, 2);
  expect_holds(pre.err, {"t: no such folder, nor checkpoints/t;",
                         "model_name: unknown model 'pythia-14m'; Capstan does not train this "
                         "family. Known names: Llama 1 to 3.3",
                         "data TinyStories: expected the folder data/tinystories"});
  EXPECT_EQ(pre.err.find("open_llama_13b"), std::string::npos) << "families, not all names";
  EXPECT_EQ(run({"finetune_full", "--checkpoint_dir=none", "--print_config"}).code, 0);
  expect_refused(
      2,
      {"pretrain", "--model.hidden_size=10", "--model.num_attention_heads=4",
       "--data.train_data_path=none.txt", "--seed=x"},
      {"seed: expected", "model.hidden_size 10 is not a multiple of", "none.txt: no such"});
}

TEST_F(Cli, BadRecipeFilesAreRefused) {
  expect_refused(4, {"pretrain", "--config", "none.yaml"}, {"none.yaml: cannot"});
  write("cycle.yaml", "a: &a\n  b: *a\n");
  expect_refused(2, {"pretrain", "--config", "cycle.yaml"}, {"cycle.yaml:1:1: a: no such key"});
  write("open.yaml", "train: {a: 1\n");
  expect_refused(2, {"pretrain", "--config", "open.yaml"}, {"error: open.yaml:"});
}

TEST_F(Cli, OutputThatCannotBeWrittenIsNoSuccess) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome o = run({"help"}, "/dev/full");
  EXPECT_EQ(o.code, 4);
  expect_holds(o.err, {"error: standard output: cannot write"});
}
}  // namespace
}  // namespace capstan::cli_test
