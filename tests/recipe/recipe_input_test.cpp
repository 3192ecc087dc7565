// How a recipe is made of defaults, files and words: which wins, and where each value came from.

#include "recipe/read_recipe.h"

namespace capstan::test {
namespace {

TEST_F(Input, TheRecordOfARunIsReadBackAsItWasWritten) {
  for (const Task task : {Task::pretrain, Task::finetune_full, Task::finetune_lora}) {
    Recipe r = defaults_of(task);
    r.out_dir = "out/a \"folder\" with: # ü";
    r.betas = {0.8, 0.9};
    r.val_split_fraction = 0.25;
    r.max_seq_length = 77;
    r.resume.mode = Resume::Mode::newest;
    const Recipe back = read(recipe_yaml(r, task), {}, task);
    EXPECT_EQ(recipe_yaml(back, task), recipe_yaml(r, task));
  }
}

TEST_F(Input, TakesKeysNestedFlatAndAsClasses) {
  const Recipe nested = read(
      "train:\n  max_steps: 5\noptimizer:\n  class_path: torch.optim.SGD\n"
      "  init_args:\n    lr: 0.5\n    momentum: 0.9\n");
  const Recipe flat =
      read("train.max_steps: 5\noptimizer: SGD\noptimizer.lr: 0.5\noptimizer.momentum: 0.9\n");
  for (const Recipe& r : {nested, flat}) {
    EXPECT_EQ(r.max_steps, 5);
    EXPECT_EQ(name_of(r.optimizer), "SGD");
    EXPECT_EQ(r.lr, 0.5);
    EXPECT_EQ(r.momentum, 0.9);
    EXPECT_EQ(r.weight_decay, 0) << "torch.optim.SGD's default";
  }
}

TEST_F(Input, ListsAreBetas) {
  EXPECT_EQ(read("optimizer.betas:\n  - 0.9\n  - 0.95\n").betas, (Betas{0.9, 0.95}));
  EXPECT_EQ(read("", {{"optimizer.betas", "[0.8,0.9]"}}).betas, (Betas{0.8, 0.9}));
}

TEST_F(Input, NullEmptiesWhatCanBeEmptyAndLeavesOtherDefaults) {
  const Recipe r = read(
      "train:\n  max_norm:\n  save_interval:\n  log_interval:\nquantize:\n"
      "precision: null\n",
      {}, Task::pretrain);
  EXPECT_FALSE(r.max_norm);
  EXPECT_FALSE(r.save_interval);
  EXPECT_EQ(r.log_interval, 1);
  EXPECT_FALSE(r.precision);
}

TEST_F(Input, TheCommandLineWinsOverTheFileAndTheFileOverTheDefaults) {
  const Recipe r = read("train.max_steps: 5\nseed: 3\n", {{"seed", "4"}});
  EXPECT_EQ(r.max_steps, 5);
  EXPECT_EQ(r.seed, 4);
  EXPECT_EQ(r.log_interval, 1);
  EXPECT_EQ(origin("train.max_steps"), "r.yaml:1:1");
  EXPECT_EQ(origin("seed"), "command line");
  EXPECT_EQ(origin("train.log_interval"), "default");
}

TEST_F(Input, AValueThatTheCommandLineReplacesNeedNotBeRight) {
  const Recipe r = read(
      "data: NoSuchSet\noptimizer: Adagrad\nquantize: bnb.int3\nseed: x\n"
      "train.max_steps: {a: 1}\n",
      {{"data", "Alpaca2k"},
       {"optimizer", "SGD"},
       {"quantize", "bnb.nf4"},
       {"seed", "5"},
       {"train.max_steps", "7"}},
      Task::finetune_lora);
  EXPECT_EQ(r.data, DataClass::alpaca2k);
  EXPECT_EQ(r.optimizer.kind, OptimizerKind::sgd);
  EXPECT_EQ(r.quantize, Quantize::nf4);
  EXPECT_EQ(r.seed, 5);
  EXPECT_EQ(r.max_steps, 7);
  EXPECT_EQ(refusal("seed: x\n", {{"seed", "y"}}),
            "seed: expected a whole number, 0 or more, found 'y'");
}

TEST_F(Input, ArgumentsOfAClassThatTheCommandLineReplacesAreDropped) {
  const std::string yaml =
      "optimizer:\n  class_path: torch.optim.Adagrad\n  init_args:\n    lr: 0.25\n"
      "    lr_decay: 0.1\n";
  EXPECT_EQ(read(yaml, {{"optimizer", "AdamW"}}).lr, 0.25);
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_TRUE(input->notes()[0].starts_with("optimizer.lr_decay (")) << input->notes()[0];
  EXPECT_TRUE(input->notes()[0].ends_with("r.yaml:5:5): dropped, AdamW does not have it"))
      << input->notes()[0];
  EXPECT_NE(refusal("optimizer: AdamW\noptimizer.lr_decay: 0.1\n", {{"optimizer", "AdamW"}})
                .find("optimizer.lr_decay: no such key"),
            std::string::npos)
      << "the class is the same";
}

// LitGPT drops the recipe's lr here.
TEST_F(Input, ABareOptimizerKeepsWhatTheNewClassHasAndSaysWhatItDropped) {
  const char* yaml =
      "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    lr: 0.0002\n"
      "    weight_decay: 0.5\n    betas: [0.9, 0.95]\n";
  const Recipe r = read(yaml, {{"optimizer", "SGD"}});
  EXPECT_EQ(name_of(r.optimizer), "SGD");
  EXPECT_EQ(r.lr, 0.0002);
  EXPECT_EQ(r.weight_decay, 0.5);
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_NE(input->notes()[0].find("optimizer.betas"), std::string::npos);
  EXPECT_NE(input->notes()[0].find("dropped, SGD does not have it"), std::string::npos);
}

TEST_F(Input, TheLeastRateFollowsARateThatIsGivenLater) {
  EXPECT_EQ(read("train.min_lr: 6e-5\n", {{"optimizer.lr", "2e-5"}}).min_lr, 2e-5);
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_TRUE(input->notes()[0].ends_with("r.yaml:1:1): lowered to optimizer.lr 2e-05"))
      << input->notes()[0];
  EXPECT_EQ(read("train.min_lr: 6e-5\n", {{"optimizer.lr", "1e-3"}}).min_lr, 6e-5);
  EXPECT_TRUE(input->notes().empty());
  EXPECT_NE(
      refusal("train.min_lr: 6e-5\noptimizer.lr: 2e-5\n").find("the learning rate would rise"),
      std::string::npos);
}

TEST_F(Input, PretrainingsDefaultLengthGivesWayToAnyOther) {
  EXPECT_TRUE(read("", {}, Task::pretrain).max_tokens);
  EXPECT_FALSE(read("train.max_steps: 5\n", {}, Task::pretrain).max_tokens);
  EXPECT_FALSE(read("train.epochs: 5\n", {}, Task::pretrain).max_tokens);
  EXPECT_EQ(read("train.max_steps: 5\ntrain.max_tokens: 9\n", {}, Task::pretrain).max_tokens, 9);
  EXPECT_EQ(read("train.max_steps: 5\n").epochs, 5);
}

TEST_F(Input, PrintConfigShowsEachValueWithItsOrigin) {
  const Recipe r = read("train.max_steps: 5\ndata.num_workers: 2\n", {{"seed", "4"}});
  const std::string text = input->print_config(r);
  for (const Option& o : options()) {
    const std::string_view key = o.key;
    const std::string last(key.substr(key.rfind('.') + 1));
    if (!o.used_by(Task::finetune_full)) continue;
    EXPECT_NE(text.find(key == "data" || key == "optimizer" ? "class_path: " : last + ": "),
              std::string::npos)
        << key;
  }
  EXPECT_NE(text.find("r.yaml:1:1\n"), std::string::npos);
  EXPECT_NE(text.find("# command line\n"), std::string::npos);
  EXPECT_NE(text.find("ignored: Capstan tokenizes all samples before training"), std::string::npos);
  EXPECT_EQ(recipe_yaml(read(text), Task::finetune_full), recipe_yaml(r, Task::finetune_full))
      << "what is printed is a recipe";
}

}  // namespace
}  // namespace capstan::test
