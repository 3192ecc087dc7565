// What is wrong with a recipe, or has no effect in it, and where.

#include <ctime>

#include "recipe/read_recipe.h"
#include "support/sanitized.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

TEST_F(Input, ASecondDocumentIsRefused) {
  EXPECT_EQ(refusal("seed: 3\n---\nseed: 4\n"),
            "r.yaml:3: expected one recipe, found a second after '---'; put it into a file of its "
            "own, and give both with --config");
  EXPECT_EQ(read("---\nseed: 3\n").seed, 3);
  EXPECT_EQ(read("seed: 3\n---\n# nothing\n").seed, 3);
  EXPECT_EQ(read("seed: 3\n...\n").seed, 3);
  EXPECT_EQ(refusal(",seed: 3\n"), "r.yaml:1:1: expected keys and values")
      << "it was taken for an empty recipe";
}

TEST_F(Input, AllErrorsAreReportedAtOnceEachWithItsPlace) {
  EXPECT_EQ(
      refusal("seed: 1\n"
              "train:\n"
              "  max_step: 3\n"
              "  schedule: [linear]\n"
              "  micro_batch_size: 3\n"
              "optimizer.lr: -1\n"
              "data:\n"
              "    packed: maybe\n"
              "model.hidden_size: 64\n",
              {{"train.epochs", "x"}}),
      "r.yaml:3:3: train.max_step: no such key (did you mean train.max_steps?)\n"
      "r.yaml:4:3: train.schedule: expected one of constant, linear, cosine, found "
      "'[linear]' (did you mean linear?)\n"
      "r.yaml:6:1: optimizer.lr: expected a number above 0, found '-1'\n"
      "r.yaml:8:5: data.packed: expected true or false, found 'maybe'\n"
      "train.epochs: expected a whole number above 0, found 'x'\n"
      "r.yaml:9:1: model.hidden_size: capstan finetune_full does not use it\n"
      "train.global_batch_size: 16 is not a multiple of train.micro_batch_size 3; use 15 or 18");
}

TEST_F(Input, ImpossibleCombinationsHaveTheirPlace) {
  EXPECT_EQ(refusal("optimizer: SGD\noptimizer.nesterov: true\n"),
            "r.yaml:2:1: optimizer.nesterov: needs optimizer.momentum above 0");
  EXPECT_EQ(refusal("train.lr_warmup_fraction: 0.1\ntrain.lr_warmup_steps: 5\n"),
            "r.yaml:1:1: train.lr_warmup_fraction: train.lr_warmup_steps sets the warm-up too; "
            "give only one of the two");
  EXPECT_EQ(refusal("train.min_lr: 0.1\n").rfind("r.yaml:1:1: train.min_lr: 0.1 is above", 0), 0u);
}

TEST_F(Input, RefusesAKeyThatIsGivenTwiceInAFile) {
  EXPECT_EQ(refusal("train.max_steps: 3\ntrain:\n  max_steps: 4\n"),
            "r.yaml:3:3: train.max_steps: given twice");
}

TEST_F(Input, RefusesWhatIsNoMap) {
  EXPECT_EQ(refusal("- 1\n- 2\n"), "r.yaml: expected keys and values");
  EXPECT_EQ(refusal("words\n"), "r.yaml: expected keys and values");
  EXPECT_EQ(refusal("[a, b]: 1\n"), "r.yaml:1:1: expected a key, found a list or a map");
  EXPECT_EQ(refusal("train.max_steps: {a: 1}\n"),
            "r.yaml:1:1: train.max_steps: expected one value, found a map");
}

TEST_F(Input, ASyntaxErrorHasItsPlace) {
  EXPECT_EQ(refusal("seed: 1\ntrain: {a: 1\n").rfind("r.yaml:", 0), 0u);
  EXPECT_EQ(refusal("seed: 1\n\tx: 2\n").rfind("r.yaml:2:", 0), 0u);
  EXPECT_EQ(refusal("seed: *nowhere\n").rfind("r.yaml:1:7:", 0), 0u);
}

TEST_F(Input, AMapInsideItselfIsAnErrorAndNotAnEndlessWalk) {
  EXPECT_NE(refusal("a: &a\n  b: *a\n").find("no such key"), std::string::npos);
  EXPECT_NE(refusal("train: &a\n  train: *a\n").find("no such key"), std::string::npos);
}

TEST_F(Input, Fp8TrainsAllWeights) {
  for (const Task task : {Task::pretrain, Task::finetune_full})
    EXPECT_EQ(read("precision: fp8-mixed\n", {}, task).precision, Precision::fp8_mixed);
  for (const Task task : {Task::finetune_lora, Task::demo})
    EXPECT_EQ(refusal("precision: fp8-mixed\n", {{"train.max_steps", "1"}}, task),
              "r.yaml:1:1: precision: fp8-mixed trains all weights, so it needs pretrain or "
              "finetune_full; use bf16-mixed with adapters");
}

TEST_F(Input, DeepNestingIsAnError) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "[";
  EXPECT_NE(refusal(text), "");
}

TEST_F(Input, AMissingFileAndAFolderAreErrorsOfTheFile) {
  RecipeInput in(Task::pretrain, defaults_of(Task::pretrain));
  const fs::path missing = folder / "none.yaml";
  EXPECT_EQ(message_of(Fault::file, [&] { in.read_file(missing); }).rfind(missing.string(), 0), 0u);
  EXPECT_EQ(message_of(Fault::file, [&] { in.read_file(folder.path()); }),
            folder.path().string() + ": is a folder; give a YAML file");
}

// Three maps of a hundred aliases each to the next: a million keys in a few thousand bytes.
TEST_F(Input, AliasesThatMakeManyKeysOfFewAreRefusedAtOnce) {
  std::string yaml = "a: &a\n";
  for (int i = 0; i < 100; ++i) yaml += fmt::format("  k{}: 1\n", i);
  for (const char* name : {"b", "c"}) {
    yaml += fmt::format("{}: &{}\n", name, name);
    for (int i = 0; i < 100; ++i)
      yaml += fmt::format("  k{}.init_args: *{}\n", i, static_cast<char>(*name - 1));
  }
  yaml += "d.init_args: *c\n";
  EXPECT_NE(refusal(yaml).find("found more than 10000 keys"), std::string::npos);
}

TEST_F(Input, SaysWhereMatmulPrecisionHasNoEffect) {
  const std::string high = "matmul_precision: high\n";
  for (const std::string precision : {"", "precision: 32-true\n"}) {
    EXPECT_EQ(read(precision + high).matmul_precision, MatmulPrecision::high);
    EXPECT_TRUE(input->notes().empty()) << "without a precision the device chooses it later";
  }
  EXPECT_EQ(read("precision: bf16-true\n" + high).matmul_precision, MatmulPrecision::high);
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_TRUE(
      input->notes()[0].ends_with("r.yaml:2:1): has no effect: bf16-true multiplies in 16 "
                                  "bits or less already"))
      << input->notes()[0];
  read("precision: bf16-true\nmatmul_precision: highest\n");
  EXPECT_TRUE(input->notes().empty());
}

TEST_F(Input, AWarmUpIsGivenInOneOfTwoWays) {
  EXPECT_EQ(read("train.lr_warmup_steps: 0\ntrain.lr_warmup_fraction: 0.1\n").lr_warmup_fraction,
            0.1);
  EXPECT_EQ(read("train.lr_warmup_steps: 10\ntrain.lr_warmup_fraction: 0\n").lr_warmup_steps, 10);
  EXPECT_NE(refusal("train.lr_warmup_steps: 10\ntrain.lr_warmup_fraction: 0.1\n")
                .find("give only one of the two"),
            std::string::npos);
}

TEST_F(Input, SaysWhichOtherKeysHaveNoEffect) {
  const auto notes_of = [&](const std::string& yaml, Task task) {
    read(yaml, {}, task);
    return fmt::format("{}", fmt::join(input->notes(), "\n"));
  };
  EXPECT_TRUE(notes_of("train.schedule: constant\ntrain.min_lr: 1e-7\n", Task::finetune_full)
                  .ends_with("r.yaml:2:1): has no effect: the schedule is constant"));
  EXPECT_EQ(notes_of("train.min_lr: 1e-7\n", Task::finetune_full), "");
  EXPECT_TRUE(notes_of("train.max_skipped: 3\n", Task::finetune_full)
                  .ends_with("r.yaml:1:1): has no effect: train.on_nan is stop"));
  EXPECT_EQ(notes_of("train.max_skipped: 3\ntrain.on_nan: skip\n", Task::finetune_full), "");
  EXPECT_EQ(notes_of("train.schedule: constant\n", Task::finetune_full), "");
  EXPECT_EQ(notes_of("train.schedule: constant\noptimizer.lr: 1e-5\ntrain.min_lr: 1e-5\n",
                     Task::pretrain),
            "")
      << "what the record of a run has";
  EXPECT_TRUE(
      notes_of("data: TextFiles\ndata.train_data_path: x\ndata.prompt_style: alpaca\n",
               Task::pretrain)
          .ends_with("r.yaml:3:1): has no effect: data is TextFiles, which has no prompts"));
  read("", {{"matmul_precision", "high"}, {"precision", "bf16-true"}});
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_TRUE(input->notes()[0].starts_with("matmul_precision (command line): has no effect"))
      << input->notes()[0];
}

// Anything may be given for a recipe.
TEST_F(Input, ThousandsOfUnknownKeysAreToldInNoTime) {
  std::string text;
  for (int i = 0; i < 9999; ++i) text += fmt::format("key{}: 1\n", i);
  const std::clock_t begin = std::clock();
  const std::string message = refusal(text);
  // Eleven seconds, when each was compared with every key. An optimised build takes half a second,
  // one with sanitizers ten times as long.
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSanitized ? 40 : 4);
  EXPECT_TRUE(message.starts_with("r.yaml:1:1: key0: no such key\n")) << message;
  EXPECT_TRUE(message.ends_with("\nand 9949 more errors")) << message;
}

}  // namespace
}  // namespace capstan::test
