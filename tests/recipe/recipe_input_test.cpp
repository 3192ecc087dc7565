#include "recipe/recipe_input.h"

#include <fmt/format.h>

#include "recipe/recipe_yaml.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

class Input : public testing::Test {
 protected:
  // The recipe that a file and words of the command line make.
  Recipe read(std::string_view yaml,
              std::initializer_list<std::pair<const char*, const char*>> words = {},
              Task task = Task::finetune_full) {
    input = std::make_unique<RecipeInput>(task, defaults_of(task));
    input->read_file(folder.write("r.yaml", yaml));
    for (const auto& [key, value] : words) input->set(key, value);
    return input->finish();
  }
  // The message of what is wrong, with the folder's name left out.
  std::string refusal(std::string_view yaml,
                      std::initializer_list<std::pair<const char*, const char*>> words = {},
                      Task task = Task::finetune_full) {
    std::string message = message_of(Fault::usage, [&] { read(yaml, words, task); });
    const std::string path = folder / "r.yaml";
    for (size_t at; (at = message.find(path)) != std::string::npos;)
      message.replace(at, path.size(), "r.yaml");
    return message;
  }
  std::string origin(const char* key) const {
    std::string text = input->origin_of(find_option(key));
    return text.substr(text.rfind('/') + 1);
  }

  TempFolder folder;
  std::unique_ptr<RecipeInput> input;
};

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

constexpr const char* kInline =
    "model_name: tiny-one\n"
    "model_config:\n  name: tiny-one\n  hf_config: {}\n  scale_embeddings: false\n"
    "  block_size: 128\n  padded_vocab_size: 320\n  n_layer: 2\n  n_head: 6\n"
    "  n_query_groups: 3\n  n_embd: 48\n  head_size: 16\n  rotary_percentage: 1.0\n"
    "  parallel_residual: false\n  bias: False\n  norm_class_name: RMSNorm\n"
    "  mlp_class_name: LLaMAMLP\n  intermediate_size: 96\n  norm_eps: 1e-6\n"
    "  rope_base: 500000\n  sliding_window_size: null\n";

TEST_F(Input, LitgptsInlineModelsAreRead) {
  const Recipe r = read(kInline, {}, Task::pretrain);
  EXPECT_EQ(r.num_hidden_layers, 2);
  EXPECT_EQ(r.num_attention_heads, 6);
  EXPECT_EQ(r.num_key_value_heads, 3);
  EXPECT_EQ(r.hidden_size, 48);
  EXPECT_EQ(r.head_dim, 16);
  EXPECT_EQ(r.intermediate_size, 96);
  EXPECT_EQ(r.vocab_size, 320);
  EXPECT_EQ(r.max_positions, 128);
  EXPECT_EQ(r.rms_norm_eps, 1e-6);
  EXPECT_EQ(r.rope_theta, 5e5);
  EXPECT_EQ(r.model_name, std::nullopt) << "the config counts, as in LitGPT";
  EXPECT_TRUE(input->notes().empty()) << input->notes()[0];
  EXPECT_EQ(recipe_yaml(read(recipe_yaml(r, Task::pretrain), {}, Task::pretrain), Task::pretrain),
            recipe_yaml(r, Task::pretrain));
  EXPECT_EQ(read(kInline, {{"model_config.n_layer", "3"}}, Task::pretrain).num_hidden_layers, 3);
}

TEST_F(Input, AnInlineModelsVocabularyIsRoundedUpAsInLitgpt) {
  const std::string sizes =
      "model_config:\n  n_layer: 2\n  n_head: 4\n  n_embd: 48\n  intermediate_size: 96\n"
      "  vocab_size: 1000\n";
  EXPECT_EQ(read(sizes, {}, Task::pretrain).vocab_size, 1024);
  EXPECT_EQ(read(sizes, {}, Task::pretrain).max_positions, 4096) << "LitGPT's default";
  EXPECT_EQ(read(sizes + "  padding_multiple: 64\n", {}, Task::pretrain).vocab_size, 1024);
  EXPECT_EQ(read(sizes + "  padding_multiple: 10\n", {}, Task::pretrain).vocab_size, 1000);
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_NE(input->notes()[0].find("norm_class_name (RMSNorm, LitGPT's default is LayerNorm)"),
            std::string::npos)
      << input->notes()[0];
}

TEST_F(Input, AnInlineModelOfAnotherFamilyIsRefusedFieldByField) {
  const std::string message = refusal(
      "model_config:\n  n_layer: 2\n  n_embd: 48\n  norm_class_name: LayerNorm\n  bias: true\n"
      "  rotary_percentage: 0.25\n  n_expert: 8\n  norm_qk: true\n  n_layers: 3\n"
      "  rope_adjustments: {factor: 8.0}\n",
      {}, Task::pretrain);
  for (const char* line :
       {"r.yaml:4:3: model_config.norm_class_name: expected RMSNorm, as in a Llama, found "
        "'LayerNorm'",
        "r.yaml:5:3: model_config.bias: expected false, as in a Llama, found 'true'",
        "r.yaml:6:3: model_config.rotary_percentage: expected 1, as in a Llama, found '0.25'",
        "r.yaml:7:3: model_config.n_expert: expected 0",
        "r.yaml:8:3: model_config.norm_qk: expected false, as in a Llama, found 'true'; for a "
        "Mistral",
        "r.yaml:9:3: model_config.n_layers: Capstan knows no such field of LitGPT's Config",
        "r.yaml:10:3: model_config.rope_adjustments: expected null, as in a Llama, found '{factor: "
        "8.0}'",
        "model_config.n_head: expected a size", "model_config.intermediate_size: expected a size"})
    EXPECT_NE(message.find(line), std::string::npos) << line << " is not in:\n" << message;
  EXPECT_EQ(read("model_config:\n  n_embd: 48\n  bias: true\n", {{"model_name", "Llama-3.2-1B"}},
                 Task::pretrain)
                .model_name,
            "Llama-3.2-1B")
      << "the command line names another model";
  EXPECT_NE(refusal(kInline).find("model_config: capstan finetune_full does not use it"),
            std::string::npos);
}

TEST_F(Input, SetsOfTextsHaveKeysOfTheirOwn) {
  const Recipe r = read(
      "data:\n  class_path: litgpt.data.LitData\n  init_args:\n    data_path: d\n"
      "    split_names:\n    - a\n    - b\n    num_workers: 8\n",
      {}, Task::pretrain);
  EXPECT_EQ(r.data, DataClass::litdata);
  EXPECT_EQ(r.data_path, "d");
  EXPECT_EQ(r.split_names, (SplitNames{"a", "b"}));
  for (const char* name : {"TinyStories", "TinyLlama", "MicroLlama", "OpenWebText"})
    EXPECT_EQ(name_of(read(fmt::format("data: {}\n", name), {}, Task::pretrain).data), name);
  const Recipe text = read("data: TinyStories\ndata.data_path: d\n",
                           {{"data", "TextFiles"}, {"data.train_data_path", "t"}}, Task::pretrain);
  EXPECT_EQ(text.data, DataClass::text_files);
  EXPECT_EQ(text.data_path, std::nullopt);
  EXPECT_EQ(refusal("data: TinyStories\ndata.use_starcoder: false\n", {}, Task::pretrain),
            "r.yaml:2:1: data.use_starcoder: only TinyLlama has it; data is TinyStories");
  EXPECT_EQ(refusal("data: JSON\ndata.json_path: a\ndata.data_path: b\n").rfind("r.yaml:3:1: ", 0),
            0u);
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

TEST_F(Input, TakesBitsandbytesOptimizersWithTheArgumentsThatCount) {
  const Recipe r = read(
      "optimizer:\n  class_path: bitsandbytes.optim.PagedAdamW8bit\n  init_args:\n"
      "    lr: 0.0002\n    betas: [0.9, 0.95]\n    eps: 1e-7\n    weight_decay: 0.5\n");
  EXPECT_EQ(name_of(r.optimizer), "PagedAdamW8bit");
  EXPECT_EQ(r.betas, (Betas{0.9, 0.95}));
  EXPECT_EQ(read("optimizer: AdamW8bit\n").weight_decay, 0.01) << "bitsandbytes' default";
  EXPECT_EQ(refusal("optimizer:\n  class_path: bnb.optim.AdamW8bit\n  init_args:\n"
                    "    min_8bit_size: 8192\n    amsgrad: true\n    momentum: 0.9\n"
                    "    optim_bits: 8\n"),
            "r.yaml:4:5: optimizer.init_args.min_8bit_size: is always 4096 in AdamW8bit; "
            "remove the key\n"
            "r.yaml:5:5: optimizer.init_args.amsgrad: is always false; remove the key\n"
            "r.yaml:7:5: optimizer.init_args.optim_bits: the optimizer's name says it, AdamW or "
            "AdamW8bit; remove the key\n"
            "r.yaml:6:5: optimizer.momentum: only SGD has it; the optimizer is AdamW8bit");
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
      input->notes()[0].ends_with("r.yaml:2:1): has no effect: bf16-true multiplies in bf16 "
                                  "or less already"))
      << input->notes()[0];
  read("precision: bf16-true\nmatmul_precision: highest\n");
  EXPECT_TRUE(input->notes().empty());
}

TEST_F(Input, ANameOfDataDoesNotReadTheRecipesFile) {
  const std::string json = "data: JSON\ndata.json_path: d.jsonl\ndata.mask_prompt: true\n";
  const Recipe named = read(json, {{"data", "Alpaca2k"}});
  EXPECT_EQ(named.data, DataClass::alpaca2k);
  EXPECT_EQ(named.json_path, std::nullopt);
  EXPECT_TRUE(named.mask_prompt);
  ASSERT_EQ(input->notes().size(), 1u);
  EXPECT_TRUE(input->notes()[0].ends_with("r.yaml:2:1): dropped, Alpaca2k does not have it"))
      << input->notes()[0];
  EXPECT_EQ(read(json, {{"data", "JSON"}}).json_path, "d.jsonl");
  EXPECT_EQ(read(json, {{"data", "Alpaca2k"}, {"data.json_path", "e"}}).json_path, "e");
  const Recipe text = read("data: TextFiles\ndata.train_data_path: t\n",
                           {{"data", "litgpt.data.JSON"}, {"data.json_path", "d"}}, Task::pretrain);
  EXPECT_EQ(text.data, DataClass::json);
  EXPECT_EQ(text.train_data_path, std::nullopt);
  EXPECT_EQ(text.json_path, "d");
  EXPECT_EQ(read("data.download_dir: x\n", {{"data", "Alpaca2k"}}).download_dir, "x");
}

TEST_F(Input, ColumnsOfDataMayBeNamed) {
  const auto columns = [](const Recipe& r) {
    return fmt::format("{}|{}|{}", r.column_instruction.value_or(""), r.column_input.value_or(""),
                       r.column_output.value_or(""));
  };
  const std::string nested = "    columns: {instruction: question, output: answer}\n";
  for (const std::string& yaml :
       {"data:\n  class_path: JSON\n  init_args:\n    json_path: d\n" + nested,
        std::string("data: JSON\ndata.json_path: d\n"
                    "data.columns:\n  instruction: question\n  output: answer\n"),
        std::string("data: JSON\ndata.json_path: d\n"
                    "data.columns.instruction: question\ndata.columns.output: answer\n")}) {
    const Recipe r = read(yaml);
    EXPECT_EQ(columns(r), "question||answer") << yaml;
    EXPECT_EQ(columns(read(recipe_yaml(r, Task::finetune_full))), "question||answer")
        << "the record of a run is read back";
    EXPECT_EQ(columns(read(yaml, {{"data.columns.output", "reply"}})), "question||reply");
    EXPECT_EQ(columns(read(yaml, {{"data", "Alpaca2k"}})), "||") << "another set has its own";
  }
  EXPECT_NE(refusal("data: JSON\ndata.json_path: d\ndata.columns.question: x\n")
                .find("data.columns.question: no such key"),
            std::string::npos);
  EXPECT_NE(refusal("data: TextFiles\ndata.train_data_path: d\ndata.columns.output: x\n")
                .find("data.columns.output: only records have it"),
            std::string::npos);
  EXPECT_EQ(read("data: TextFiles\ndata.train_data_path: d\ndata.columns.text: x\n").column_text,
            "x");
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

TEST_F(Input, TakesWhatPythonAndYamlWrite) {
  const Recipe r = read(
      "data.mask_prompt: yes\neval.final_validation: Off\n"
      "train.max_steps: 1_000\nresume: no\n",
      {{"optimizer.lr", "+1e-4"}});
  EXPECT_TRUE(r.mask_prompt);
  EXPECT_FALSE(r.final_validation);
  EXPECT_EQ(r.max_steps, 1000);
  EXPECT_EQ(r.resume, Resume());
  EXPECT_EQ(r.lr, 1e-4);
  for (const char* wrong : {"_1", "1_", "1__0", "+-1", "++1", "+"})
    EXPECT_NE(refusal("", {{"train.max_steps", wrong}}).find("expected a whole number"),
              std::string::npos)
        << wrong;
  EXPECT_EQ(read("data.class_path: litgpt.data.json_data.JSON\ndata.json_path: d\n").data,
            DataClass::json);
}

TEST_F(Input, ArgumentsThatDoNothingArePassedOver) {
  read(
      "optimizer:\n  class_path: torch.optim.AdamW\n  init_args:\n    amsgrad: false\n"
      "    maximize: false\n    foreach: null\n    fused: null\naccess_token: null\n");
  for (const char* on : {"optimizer.amsgrad: true\n", "optimizer.maximize: true\n"})
    EXPECT_NE(refusal(on).find("optimizer."), std::string::npos) << on;
  read("log: null\n");
  read(
      "log:\n  project: animals\n  run: null\n  group: null\n  teamspace: null\n  metadata:\n"
      "    who: me\n  log_model: false\n  save_logs: true\n  checkpoint_name: null\n");
  EXPECT_NE(refusal("log.projekt: animals\n").find("log.projekt: no such key"), std::string::npos);
}

TEST_F(Input, APromptStyleMayBeAClass) {
  for (const char* yaml :
       {"data:\n  class_path: JSON\n  init_args:\n    json_path: d\n    prompt_style:\n"
        "      class_path: litgpt.prompts.Llama3\n",
        "data: JSON\ndata.json_path: d\ndata.prompt_style.class_path: litgpt.prompts.Llama3\n"})
    EXPECT_EQ(read(yaml).prompt_style, "litgpt.prompts.Llama3");
  EXPECT_EQ(read("data: JSON\ndata.json_path: d\ndata.prompt_style: null\n").prompt_style,
            std::nullopt);
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

// Recipes of a laboratory that uses LitGPT.
TEST_F(Input, TheLabsRecipesAreReadUnchanged) {
  const fs::path recipes = fs::path(CAPSTAN_SOURCE_DIR) / ".." / "shared" / "recipes";
  if (!fs::exists(recipes)) GTEST_SKIP() << "no recipes beside the project";
  int count = 0;
  for (const auto& entry : fs::directory_iterator(recipes)) {
    const bool lora = entry.path().string().find("lora") != std::string::npos;
    const Task task = lora ? Task::finetune_lora : Task::finetune_full;
    RecipeInput in(task, defaults_of(task));
    in.read_file(entry.path());
    const Recipe r = in.finish();
    EXPECT_TRUE(r.checkpoint_dir.value().starts_with("checkpoints/")) << entry.path();
    EXPECT_EQ(r.data, DataClass::alpaca2k);
    EXPECT_EQ(r.val_split_fraction, 0.5);
    EXPECT_EQ(r.prompt_style, "alpaca");
    EXPECT_EQ(r.max_seq_length, 512);
    EXPECT_EQ(r.epochs, 1);
    EXPECT_FALSE(r.max_norm);
    EXPECT_EQ(r.min_lr, 6e-5);
    EXPECT_EQ(r.lr, 2e-4);
    EXPECT_EQ(r.weight_decay, 0);
    EXPECT_EQ(r.betas, (Betas{0.9, 0.95}));
    EXPECT_FALSE(r.final_validation);
    EXPECT_EQ(r.lora_r, lora ? 32 : 8);
    ++count;
  }
  EXPECT_EQ(count, 8);
}

}  // namespace
}  // namespace capstan
