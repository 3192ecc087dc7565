// What people's recipes for LitGPT have in them, and what Python writes.

#include "recipe/read_recipe.h"

namespace capstan::test {
namespace {

namespace fs = std::filesystem;

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
}  // namespace capstan::test
