#include "checkpoint/checkpoint.h"
#include "program.h"

namespace capstan::cli_test {
namespace {

TEST_F(Cli, PretrainWantsData) {
  expect_refused(2, {"pretrain"}, {"--data.train_data_path PATH"});
  expect_refused(4, {"pretrain", "--data.train_data_path", "none"},
                 {"error: none: no such file or folder"});
  fs::create_directory(at("empty"));
  expect_refused(4, {"pretrain", "--data.train_data_path", "empty"},
                 {"empty: no .txt and no .jsonl files"});
  write("nothing.txt", "");
  expect_refused(4, {"pretrain", "--data.train_data_path", "nothing.txt"}, {"contains no text"});
  write("short.txt", "hi");
  expect_refused(4, {"pretrain", "--data.train_data_path", "short.txt"},
                 {"cannot hold out", "one must remain for training"});
}

TEST_F(Cli, TextThatIsNotUtf8IsRefusedWithItsLine) {
  write("latin.txt", "fine\ncaf\xe9\n");
  expect_refused(4, {"pretrain", "--data.train_data_path", "latin.txt"},
                 {"latin.txt:2: not UTF-8: byte 0xe9"});
}

TEST_F(Cli, ABadConfigIsRefusedWithItsPlace) {
  write("broken.json", "{\"vocab_size\": 300,\n }");
  expect_refused(4, brief({"--model_config=broken.json"}), {"broken.json:2:2: "});
  write("other.json", "{\"architectures\": [\"GPT2LMHeadModel\"]}");
  expect_refused(4, brief({"--model_config=other.json"}), {"other.json:1:", "LlamaForCausalLM"});
  expect_refused(4, brief({"--model_config=none.json"}), {"none.json: cannot open"});
}

TEST_F(Cli, SizesThatDoNotMatchAreRefused) {
  expect_refused(2, tiny({"--train.global_batch_size=30", "--train.micro_batch_size=7"}),
                 {"train.global_batch_size: 30", "use 28 or 35"});
  expect_refused(2, tiny({"--model.num_attention_heads=3"}),
                 {"model.hidden_size 16 is not a multiple of model.num_attention_heads 3"});
  expect_refused(2, tiny({"--model.hidden_size=4096"}),
                 {"head_dim", "model.hidden_size / model.num_attention_heads: 4096 / 2"});
  expect_refused(2, tiny({"--optimizer.lr=1e-6", "--train.min_lr=4e-5"}),
                 {"train.min_lr: 4e-05 is above"});
  const Words odd_groups = tiny({"--model.num_key_value_heads=3"});
  expect_refused(2, odd_groups, {"num_key_value_heads"});
  EXPECT_EQ(run(odd_groups).err.find("head_dim"), std::string::npos);
}

TEST_F(Cli, ALowerLearningRateNeedsNoMinimumOfItsOwn) {
  train_tiny({"--optimizer.lr=1e-5"});
  expect_holds(slurp(at(made) / "hyperparameters.yaml"), {"  min_lr: 1e-05\n"});
}

// Here all of it fits, and what is recomputed changes no bit.
TEST_F(Cli, ActivationsCanBeChosenByTheRun) {
  const Outcome o = run(tiny({"--activations=auto"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"activations: none, the least recomputation that fits into "});
  const std::string weights = slurp(at(made) / "model.safetensors");
  expect_holds(slurp(at(made) / "hyperparameters.yaml"), {"activations: auto\n"});
  train_tiny({"--activations=block:1", "--out_dir=other"});
  EXPECT_TRUE(weights == slurp(at("other/final/model.safetensors")));
  expect_holds(slurp(at("other/final/hyperparameters.yaml")), {"activations: \"block:1\"\n"});
  expect_refused(2, tiny({"--activations=none:1"}),
                 {"activations: expected one of none, selective"});
}

TEST_F(Cli, KeysWithoutAnEffectAreRefused) {
  expect_refused(2, tiny({"--model_config=c.json"}),
                 {"model.hidden_size: model_config sets it too", "model.num_hidden_layers: "});
  expect_refused(2, brief({"--initial_checkpoint_dir=c", "--model_config=c.json"}),
                 {"model_config: initial_checkpoint_dir has"});
  expect_refused(2, tiny({"--optimizer.momentum=0.9"}),
                 {"optimizer.momentum: only SGD has it; the optimizer is AdamW"});
  expect_refused(2, tiny({"--optimizer=torch.optim.SGD", "--optimizer.eps=1e-6"}),
                 {"optimizer.eps: only AdamW has it; the optimizer is SGD"});
  expect_refused(2, tiny({"--optimizer=SGD", "--optimizer.nesterov=true"}),
                 {"optimizer.nesterov: needs optimizer.momentum above 0"});
  write("r.yaml", "optimizer.betas: [0.8, 0.9]\n");
  const Outcome o = run(tiny({"--config=r.yaml", "--optimizer=SGD"}));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"optimizer.betas (r.yaml:1:1): dropped, SGD does not have it"});
}

TEST_F(Cli, TheDemoRefusesAndHidesKeysThatItDoesNotUse) {
  const std::string help = run({"demo", "--help"}).out;
  for (const char* key : {"model_config", "initial_checkpoint_dir", "data.train_data_path",
                          "data.val_split_fraction", "train.max_seq_length"}) {
    expect_refused(2, {"demo", std::string("--") + key, key[0] == 't' ? "32" : "0.5"},
                   {std::string(key) + ": capstan demo does not use it"});
    EXPECT_EQ(help.find(key), std::string::npos) << key;
  }
  expect_holds(help, {"--model.hidden_size", "--train.max_steps", "--accelerator"});
}

TEST_F(Cli, AWarmUpThatDoesNotEndIsWarnedOf) {
  expect_holds(run(tiny({"--train.lr_warmup_steps=3"})).err,
               {"warning: the warm-up of 3 steps is as long as the run of 3 or longer"});
  EXPECT_EQ(run(tiny({"--train.lr_warmup_steps=2"})).err.find("warm-up"), std::string::npos);
}

TEST_F(Cli, TrainsAModelThatARecipeDescribesInLitgptsWords) {
  write("r.yaml",
        "model_config:\n  name: tiny-one\n  block_size: 96\n  padded_vocab_size: 320\n"
        "  n_layer: 1\n  n_head: 3\n  n_query_groups: 1\n  n_embd: 24\n  head_size: 4\n"
        "  rotary_percentage: 1.0\n  parallel_residual: false\n  bias: false\n"
        "  norm_class_name: RMSNorm\n  mlp_class_name: LLaMAMLP\n  intermediate_size: 40\n"
        "  norm_eps: 1.0e-06\n  rope_base: 20000\ndata: NoSuchSet\n");
  const Outcome o = run(brief({"--config=r.yaml", "--data=TextFiles"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const ModelConfig c = read_config(at(made));
  EXPECT_EQ(c.vocab, 320);
  EXPECT_EQ(c.max_positions, 96);
  EXPECT_EQ(c.heads, 3);
  EXPECT_EQ(c.kv_heads, 1);
  EXPECT_EQ(c.head_dim, 4);
  EXPECT_EQ(c.hidden, 24);
  EXPECT_EQ(c.intermediate, 40);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.rope_theta, 20000);
  const Words again = {"pretrain", "--config=" + (at(made) / "hyperparameters.yaml").string(),
                       "--out_dir=again"};
  EXPECT_EQ(run(again).code, 0) << "the record of a run is a recipe";
  EXPECT_TRUE(slurp(at("again/final/model.safetensors")) == slurp(at(made) / "model.safetensors"));
}

TEST_F(Cli, AModelOfAForeignConfigGetsTheIdsOfTheTokenizer) {
  write("c.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "vocab_size": 300, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
    "num_attention_heads": 2, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": 2})");
  const Outcome o = run(brief({"--model_config=c.json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const ModelConfig c = read_config(at(made));
  EXPECT_EQ(c.bos_id, 256);
  EXPECT_EQ(c.eos_ids, (decltype(c.eos_ids){257}));
}

TEST_F(Cli, AModelThatDoesNotFitIsRefusedAtOnce) {
  const Outcome o = run(tiny({"--model.hidden_size=65536", "--model.num_attention_heads=512",
                              "--model.num_key_value_heads=512", "--model.num_hidden_layers=200"}));
  EXPECT_EQ(o.code, 3) << o.err;
  expect_holds(o.err, {"error: does not fit: needs ", " TiB", " free. No change of"});
  EXPECT_LT(o.seconds, 1.0);
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(Cli, AFolderThatCannotBeWrittenIsKnownBeforeTheTraining) {
  write("taken/final/thesis.tex", "precious");
  expect_refused(2, tiny({"--out_dir=taken"}),
                 {"taken/final is no checkpoint", "give another --out_dir"});
  EXPECT_EQ(run(tiny({"--out_dir=taken"})).out.find("step 1 |"), std::string::npos);
  EXPECT_EQ(slurp(at("taken/final/thesis.tex")), "precious");
  expect_refused(4, tiny({"--out_dir=text.txt"}), {"text.txt/final"});
}

TEST_F(Cli, PretrainMakesAFolderWithTheModel) {
  const Outcome o = run(tiny());
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"training samples", "memory", "planned",
                       "Epoch 1 | iter 2 step 1 | loss train: ", "(step)",
                       "Final evaluation | val loss", "measured", "saved to out/pretrain/final"});
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "hyperparameters.yaml"})
    EXPECT_TRUE(fs::exists(at(made) / name)) << name;
  EXPECT_EQ(read_config(at(made)).hidden, 16);
  expect_holds(slurp(at(made) / "hyperparameters.yaml"),
               {"  hidden_size: 16\n", "  max_steps: 3\n", "  class_path: AdamW\n"});
}

TEST_F(Cli, TheSameRecipeGivesTheSameModelToTheBit) {
  train_tiny({"--out_dir=a"});
  train_tiny({"--config=a/final/hyperparameters.yaml", "--out_dir=b"});
  train_tiny({"--out_dir=c", "--seed=43"});
  const std::string a = slurp(at("a/final/model.safetensors"));
  EXPECT_FALSE(a.empty());
  EXPECT_EQ(slurp(at("b/final/model.safetensors")), a);
  EXPECT_NE(slurp(at("c/final/model.safetensors")), a);
}

TEST_F(Cli, TheCommandLineOverridesTheFileWhateverTheOrder) {
  write("r.yaml", "train:\n  max_steps: 1\nprecision: bf16-true\nout_dir: from_file\n");
  for (const Words& more : {Words{"--config=r.yaml", "--train.max_steps=2"},
                            Words{"--train.max_steps=2", "--config=r.yaml"}}) {
    const Outcome o = run(tiny(more));
    EXPECT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {"2 steps,"});
    expect_holds(slurp(at("from_file/final/hyperparameters.yaml")),
                 {"precision: bf16-true", "  max_steps: 2"});
    EXPECT_EQ(read_config(at("from_file/final")).dtype, DType::bf16);
  }
}

TEST_F(Cli, GoesOnFromACheckpoint) {
  train_tiny({"--train.max_steps=40", "--optimizer.lr=0.01", "--train.lr_warmup_steps=2"});
  const Outcome o = run(
      brief({"--initial_checkpoint_dir=" + made, "--out_dir=more", "--train.lr_warmup_steps=0"}));
  ASSERT_EQ(o.code, 0) << o.err;
  // Random weights have a loss of log(259) = 5.56.
  const std::string first = "step 1 | loss train: ";
  const size_t loss = o.out.find(first) + first.size();
  EXPECT_LT(std::stod(o.out.substr(loss)), 4.5) << o.out;
  EXPECT_EQ(read_config(at("more/final")), read_config(at(made)));
}

TEST_F(Cli, ACheckpointThatCannotBeGoneOnFromIsRefused) {
  expect_refused(4, brief({"--initial_checkpoint_dir=none"}),
                 {"none: no such folder, nor checkpoints/none"});
  train_tiny();
  const Outcome longer = run(
      brief({"--initial_checkpoint_dir=" + made, "--train.max_seq_length=65", "--out_dir=longer"}));
  EXPECT_EQ(longer.code, 0) << longer.err;
  expect_holds(longer.err, {"warning: train.max_seq_length 65: the model has 64 positions"});
  write(made + "/tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  expect_refused(4, brief({"--initial_checkpoint_dir=" + made}), {"tokenizer.json"});
}

TEST_F(Cli, ASignalEndsTheRunAfterTheStepAndTheWeightsAreSaved) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
    const pid_t pid = start({"pretrain", "--data.train_data_path", "text.txt", "--out_dir", "out",
                             "--model.hidden_size", "16", "--model.intermediate_size", "32",
                             "--train.max_steps", "100000000", "--train.global_batch_size", "2",
                             "--train.micro_batch_size", "2", "--train.max_seq_length", "32"});
    for (int i = 0; i < 1000 && slurp(at("stdout")).find("step 3 |") == std::string::npos; ++i)
      ::usleep(20'000);
    ASSERT_EQ(::kill(pid, signal), 0);
    const Outcome o = finish(pid);
    EXPECT_EQ(o.code, 128 + signal) << o.err;
    expect_holds(o.err, {"interrupted after step ", "out/step-000"});
    int saved = 0;
    for (const auto& entry : fs::directory_iterator(at("out"))) {
      if (entry.path().filename() == "logs") continue;
      saved += 1;
      EXPECT_EQ(run({"generate", entry.path().string(), "--max_new_tokens", "2"}).code, 0);
    }
    EXPECT_EQ(saved, 1);
    fs::remove_all(at("out"));
  }
}
}  // namespace
}  // namespace capstan::cli_test
