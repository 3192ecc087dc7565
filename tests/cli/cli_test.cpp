// The program as a user meets it: command lines in, exit code, stdout and stderr out.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "support/temp_folder.h"

extern char** environ;

namespace capstan {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct Outcome {
  int code = -1;  // 128 + the signal, where one ended it
  std::string out, err;
  double seconds = 0;  // of the processor: a busy machine does not add to it
};

void expect_holds(const std::string& text, const Words& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

// A folder in which the program runs, with a text to train on.
class Cli : public testing::Test {
 protected:
  Cli() {
    ::setenv("OMP_NUM_THREADS", "1", 1);  // threads of a tiny model spend their time waiting
    std::string text;
    for (int i = 0; i < 40; ++i) text += "Once there was a llama. It ate grass.\n";
    write("text.txt", text);
  }

  void write(const std::string& name, std::string_view text) const {
    fs::create_directories((folder.path() / name).parent_path());
    std::ofstream(folder.path() / name, std::ios::binary) << text;
  }
  fs::path at(const std::string& name) const { return folder.path() / name; }

  Outcome run(Words words, const char* stdout_path = nullptr) const {
    return finish(start(std::move(words), stdout_path), stdout_path);
  }

  pid_t start(Words words, const char* stdout_path = nullptr) const {
    const fs::path out = stdout_path != nullptr ? stdout_path : at("stdout"), err = at("stderr");
    words.insert(words.begin(), CAPSTAN_PROGRAM);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, folder.path().c_str());
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, out.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err.c_str(), kFlags, 0600);
    pid_t pid = 0;
    EXPECT_EQ(posix_spawn(&pid, CAPSTAN_PROGRAM, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    return pid;
  }

  Outcome finish(pid_t pid, const char* stdout_path = nullptr) const {
    int status = 0;
    rusage usage{};
    EXPECT_EQ(wait4(pid, &status, 0, &usage), pid);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const double seconds =
        static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
        1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return {code, stdout_path != nullptr ? "" : slurp(at("stdout")), slurp(at("stderr")), seconds};
  }

  static std::string slurp(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  // The command must fail with this code, nothing on stdout, and these words on stderr.
  void expect_refused(int code, const Words& words, const Words& parts) const {
    SCOPED_TRACE(testing::PrintToString(words));
    const Outcome o = run(words);
    EXPECT_EQ(o.code, code) << o.err;
    EXPECT_EQ(o.out, "");
    expect_holds(o.err, parts);
    EXPECT_EQ(o.err.find("bug in capstan"), std::string::npos) << o.err;
  }

  // A short run, of a model that `more` tells.
  static Words brief(const Words& more) {
    Words words = {"pretrain",
                   "--data.train_data_path=text.txt",
                   "--train.max_seq_length=64",
                   "--train.max_steps=3",
                   "--train.global_batch_size=4",
                   "--train.micro_batch_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // A model so small that a run takes a fraction of a second.
  static Words tiny(const Words& more = {}) {
    Words words = brief({"--model.hidden_size=16", "--model.intermediate_size=24",
                         "--model.num_hidden_layers=1", "--model.num_attention_heads=2",
                         "--model.num_key_value_heads=1"});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  void train_tiny(const Words& more = {}) const {
    const Outcome o = run(tiny(more));
    ASSERT_EQ(o.code, 0) << o.err;
  }

  TempFolder folder;
  const std::string made = "out/pretrain/final";
};

// ---- help and usage ------------------------------------------------------------------------

TEST_F(Cli, WithoutACommandTellsTheCommandsAndExamples) {
  for (const Words& words : {Words{}, Words{"help"}, Words{"--help"}, Words{"-h"}}) {
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0);
    expect_holds(o.out, {"usage: capstan", "pretrain", "generate", "demo",
                         "examples:", "capstan pretrain --data.train_data_path"});
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
    expect_holds(o.out, {"usage: capstan pretrain", "--train.max_steps", "[200]",
                         "(constant|linear|cosine)"});
  }
  const Outcome o = run({"generate", "--help"});
  EXPECT_EQ(o.code, 0);
  expect_holds(o.out, {"checkpoint_dir", "--prompt", "--temperature"});
}

TEST_F(Cli, AnUnknownCommandListsThem) {
  expect_refused(2, {"trian"}, {"error: 'trian' is not a command", "pretrain, generate, demo"});
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
  expect_refused(
      2,
      {"pretrain", "word", "--config", "r.yaml", "--optimizer.lr", "-1", "--train.max_steps", "0",
       "--nonsense=1", "--data.packed"},
      {"error: 'word': expected --key value\n", "       data.packed: expected a value after it\n",
       "       r.yaml:1:1: seed: expected a whole number, 0 or more, found 'x'\n",
       "       r.yaml:3:3: train.max_stepz: no such key",
       "       optimizer.lr: expected a number above 0, found '-1'\n",
       "       train.max_steps: expected a whole number above 0, found '0'\n",
       "       nonsense: no such key"});
}

TEST_F(Cli, BadRecipeFilesAreRefused) {
  expect_refused(4, {"pretrain", "--config", "none.yaml"}, {"none.yaml: cannot be opened"});
  write("cycle.yaml", "a: &a\n  b: *a\n");
  expect_refused(2, {"pretrain", "--config", "cycle.yaml"}, {"cycle.yaml:2:3: "});
  write("open.yaml", "train: {a: 1\n");
  expect_refused(2, {"pretrain", "--config", "open.yaml"}, {"error: open.yaml:"});
}

TEST_F(Cli, OutputThatCannotBeWrittenIsNoSuccess) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome o = run({"help"}, "/dev/full");
  EXPECT_EQ(o.code, 4);
  expect_holds(o.err, {"error: standard output: cannot write"});
}

// ---- pretrain ------------------------------------------------------------------------------

TEST_F(Cli, PretrainWantsData) {
  expect_refused(2, {"pretrain"}, {"--data.train_data_path PATH"});
  expect_refused(4, {"pretrain", "--data.train_data_path", "none"},
                 {"error: none: no such file or folder"});
  fs::create_directory(at("empty"));
  expect_refused(4, {"pretrain", "--data.train_data_path", "empty"}, {"empty: no .txt files"});
  write("nothing.txt", "");
  expect_refused(4, {"pretrain", "--data.train_data_path", "nothing.txt"}, {"holds no text"});
  write("short.txt", "hi");
  expect_refused(4, {"pretrain", "--data.train_data_path", "short.txt"},
                 {"one sample", "--data.val_split_fraction 0"});
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
                 {"train.global_batch_size 30", "28 or 35 would be"});
  expect_refused(2, tiny({"--model.num_attention_heads=3"}),
                 {"model.hidden_size 16 is not a multiple of model.num_attention_heads 3"});
  expect_refused(2, tiny({"--model.hidden_size=4096"}),
                 {"head_dim", "model.hidden_size / model.num_attention_heads: 4096 / 2"});
  expect_refused(2, tiny({"--optimizer.lr=1e-6", "--train.min_lr=4e-5"}),
                 {"train.min_lr 4e-05 is above"});
  const Words odd_groups = tiny({"--model.num_key_value_heads=3"});
  expect_refused(2, odd_groups, {"num_key_value_heads"});
  EXPECT_EQ(run(odd_groups).err.find("head_dim"), std::string::npos);
}

TEST_F(Cli, ALowerLearningRateNeedsNoMinimumOfItsOwn) {
  train_tiny({"--optimizer.lr=1e-5"});
  expect_holds(slurp(at(made) / "hyperparameters.yaml"), {"train.min_lr: 1e-05\n"});
}

TEST_F(Cli, KeysWithoutAnEffectAreRefused) {
  expect_refused(2, tiny({"--model_config=c.json"}),
                 {"model.hidden_size: model_config says it", "model.num_hidden_layers: "});
  expect_refused(2, brief({"--initial_checkpoint_dir=c", "--train.tie_embeddings=true"}),
                 {"train.tie_embeddings: initial_checkpoint_dir has"});
  expect_refused(2, brief({"--initial_checkpoint_dir=c", "--model_config=c.json"}),
                 {"model_config: initial_checkpoint_dir has"});
  expect_refused(2, tiny({"--optimizer.momentum=0.9"}),
                 {"optimizer.momentum: SGD has it, and the optimizer is AdamW"});
  expect_refused(2, tiny({"--optimizer=torch.optim.SGD", "--optimizer.eps=1e-6"}),
                 {"optimizer.eps: AdamW has it, and the optimizer is SGD"});
  expect_refused(2, tiny({"--optimizer=SGD", "--optimizer.nesterov=true"}),
                 {"optimizer.nesterov: needs an optimizer.momentum above 0"});
  write("r.yaml", "optimizer.beta1: 0.8\n");
  expect_refused(2, tiny({"--config=r.yaml", "--optimizer=SGD"}), {"optimizer.beta1: AdamW"});
}

TEST_F(Cli, TheDemoRefusesAndHidesKeysThatItDoesNotUse) {
  const std::string help = run({"demo", "--help"}).out;
  for (const char* key : {"model_config", "initial_checkpoint_dir", "data.train_data_path",
                          "data.val_split_fraction", "train.max_seq_length"}) {
    expect_refused(2, {"demo", std::string("--") + key, key[0] == 't' ? "32" : "0.5"},
                   {std::string(key) + ": capstan demo does not use it"});
    EXPECT_EQ(help.find(key), std::string::npos) << key;
  }
  expect_holds(help, {"--model.hidden_size", "--train.max_steps"});
}

TEST_F(Cli, AWarmUpThatDoesNotEndIsWarnedOf) {
  expect_holds(run(tiny({"--train.lr_warmup_steps=3"})).err,
               {"warning: the warm-up of 3 steps is not shorter than the run of 3"});
  EXPECT_EQ(run(tiny({"--train.lr_warmup_steps=2"})).err.find("warm-up"), std::string::npos);
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
  expect_holds(o.err, {"error: does not fit: needs ", " TiB, ", " free. No single change"});
  EXPECT_LT(o.seconds, 1.0);
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(Cli, AFolderThatCannotBeWrittenIsKnownBeforeTheTraining) {
  write("taken/final/thesis.tex", "precious");
  expect_refused(4, tiny({"--out_dir=taken"}), {"taken/final", "choose another folder"});
  EXPECT_EQ(run(tiny({"--out_dir=taken"})).err.find("step 1/"), std::string::npos);
  EXPECT_EQ(slurp(at("taken/final/thesis.tex")), "precious");
  expect_refused(4, tiny({"--out_dir=text.txt"}), {"text.txt/final"});
}

TEST_F(Cli, PretrainMakesAFolderWithTheModel) {
  const Outcome o = run(tiny());
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "") << "progress goes to stderr";
  expect_holds(o.err, {"training samples", "memory", "planned", "step 1/3 | loss ", "step 3/3",
                       " | val ", "measured", "saved to out/pretrain/final"});
  for (const char* name : {"config.json", "model.safetensors", "tokenizer.json",
                           "tokenizer_config.json", "hyperparameters.yaml"})
    EXPECT_TRUE(fs::exists(at(made) / name)) << name;
  EXPECT_EQ(read_config(at(made)).hidden, 16);
  expect_holds(slurp(at(made) / "hyperparameters.yaml"),
               {"model.hidden_size: 16\n", "train.max_steps: 3\n", "optimizer: \"AdamW\"\n"});
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
    expect_holds(o.err, {"step 2/2"});
    expect_holds(slurp(at("from_file/final/hyperparameters.yaml")),
                 {"precision: \"bf16-true\"", "train.max_steps: 2"});
    EXPECT_EQ(read_config(at("from_file/final")).dtype, DType::bf16);
  }
}

TEST_F(Cli, GoesOnFromACheckpoint) {
  train_tiny({"--train.max_steps=40", "--optimizer.lr=0.01", "--train.lr_warmup_steps=2"});
  const Outcome o = run(
      brief({"--initial_checkpoint_dir=" + made, "--out_dir=more", "--train.lr_warmup_steps=0"}));
  ASSERT_EQ(o.code, 0) << o.err;
  // Random weights have a loss of log(259) = 5.56.
  const size_t loss = o.err.find("step 1/3 | loss ") + 16;
  EXPECT_LT(std::stod(o.err.substr(loss)), 4.5) << o.err;
  EXPECT_EQ(read_config(at("more/final")), read_config(at(made)));
}

TEST_F(Cli, ACheckpointThatCannotBeGoneOnFromIsRefused) {
  expect_refused(4, brief({"--initial_checkpoint_dir=none"}), {"none/config.json"});
  train_tiny();
  expect_refused(2, brief({"--initial_checkpoint_dir=" + made, "--train.max_seq_length=65"}),
                 {"train.max_seq_length 65", "--train.max_seq_length 64 or less"});
  write(made + "/tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}");
  expect_refused(4, brief({"--initial_checkpoint_dir=" + made}),
                 {"tokenizer.json: expected capstan's byte-level tokenizer"});
}

// ---- generate ------------------------------------------------------------------------------

TEST_F(Cli, GenerateWritesTextToStdoutAndTimingsToStderr) {
  train_tiny();
  const Outcome o = run({"generate", made, "--prompt", "Once", "--max_new_tokens=9"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out.rfind("Once", 0), 0u) << o.out;
  EXPECT_EQ(o.out.back(), '\n');
  EXPECT_LE(o.out.size(), 4u + 9 + 1);
  expect_holds(o.err, {" tokens in ", " tok/s"});
}

TEST_F(Cli, TheSameSeedGivesTheSameText) {
  train_tiny();
  const auto text = [&](const Words& more) {
    Words words = {"generate", made, "--max_new_tokens=30"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome o = run(words);
    EXPECT_EQ(o.code, 0) << o.err;
    return o.out;
  };
  const std::string first = text({"--seed=7"});
  EXPECT_EQ(text({"--seed=7"}), first);
  EXPECT_NE(text({"--seed=8"}), first);
  EXPECT_EQ(text({"--temperature=0", "--seed=7"}), text({"--temperature=0", "--seed=8"}));
  // Several samples differ, and the first is the one there would be alone.
  const std::string two = text({"--seed=7", "--num_samples=2"});
  EXPECT_EQ(two.rfind(first, 0), 0u);
  EXPECT_NE(two.substr(first.size()), first);
}

TEST_F(Cli, GenerateLooksUnderCheckpointsAsWell) {
  train_tiny({"--out_dir=checkpoints/mine"});
  EXPECT_EQ(run({"generate", "mine/final", "--max_new_tokens=2"}).code, 0);
}

TEST_F(Cli, GenerateStopsAtTheModelsLastPosition) {
  train_tiny();
  const Outcome o = run({"generate", made, "--prompt=abc", "--temperature=0",
                         "--max_new_tokens=9223372036854775807"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err,
               {"warning: stopped at the last of the model's 64 positions", "60 tokens in "});
  EXPECT_LE(o.out.size(), 3u + 60 + 1);
  expect_refused(2, {"generate", made, "--prompt", std::string(70, 'a')},
                 {"--prompt: 71 tokens", "64 positions"});
}

TEST_F(Cli, GenerateRefusesBadValues) {
  expect_refused(2, {"generate"}, {"checkpoint_dir is required"});
  expect_refused(2, {"generate", "x", "--temperature", "-1"},
                 {"--temperature: expected a number of 0 or more, found '-1'"});
  expect_refused(2, {"generate", "x", "--temperature=nan"}, {"found 'nan'"});
  expect_refused(2, {"generate", "x", "--top_p=1.5"}, {"from 0 to 1, found '1.5'"});
  expect_refused(2, {"generate", "x", "--seed", "-1"}, {"--seed: expected", "'-1'"});
  expect_refused(2, {"generate", "x", "--max_new_tokens=0"}, {"of 1 or more, found '0'"});
  expect_refused(2, {"generate", "x", "--max_new_tokens=many"}, {"found 'many'"});
  expect_refused(2, {"generate", "x", "several", "words"}, {"'several': not expected"});
}

TEST_F(Cli, GenerateRefusesDamagedFoldersAndNamesTheFile) {
  expect_refused(4, {"generate", "none"}, {"none: no such folder"});
  expect_refused(4, {"generate", std::string(5000, 'x')}, {"no such folder"});
  fs::create_directory(at("empty"));
  expect_refused(4, {"generate", "empty"}, {"empty/config.json"});

  train_tiny();
  expect_refused(2, {"generate", made, "--precision=8-true"}, {"'8-true' is not one of"});
  expect_refused(2, {"generate", made, "--precision=bf16-mixed"}, {"bf16-mixed is for training"});
  const std::string good = slurp(at(made) / "model.safetensors");
  write(made + "/model.safetensors", good.substr(0, good.size() - 1));
  expect_refused(4, {"generate", made}, {made + "/model.safetensors"});
  write(made + "/model.safetensors", "nonsense");
  expect_refused(4, {"generate", made}, {made + "/model.safetensors: "});
  fs::remove(at(made) / "model.safetensors");
  expect_refused(4, {"generate", made}, {made});
  write(made + "/tokenizer.json", "{");
  expect_refused(4, {"generate", made}, {made + "/tokenizer.json:1:"});
  write(made + "/config.json", "{\n \"vocab_size\": }");
  expect_refused(4, {"generate", made}, {made + "/config.json:2:"});
}

TEST_F(Cli, ASignalEndsTheRunAfterTheStepAndTheWeightsAreSaved) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const pid_t pid =
        start({"pretrain", "--data.train_data_path", "text.txt", "--out_dir", "out",
               "--model.hidden_size", "16", "--model.intermediate_size", "32", "--train.max_steps",
               "100000000", "--train.global_batch_size", "2", "--train.micro_batch_size", "2"});
    for (int i = 0; i < 1000 && slurp(at("stderr")).find("step 3/") == std::string::npos; ++i)
      ::usleep(20'000);
    ASSERT_EQ(::kill(pid, signal), 0);
    const Outcome o = finish(pid);
    EXPECT_EQ(o.code, 128 + signal) << o.err;
    expect_holds(o.err, {"interrupted after step ", "out/step-000"});
    int saved = 0;
    for (const auto& entry : fs::directory_iterator(at("out"))) {
      saved += 1;
      EXPECT_EQ(run({"generate", entry.path().string(), "--max_new_tokens", "2"}).code, 0);
    }
    EXPECT_EQ(saved, 1);
    fs::remove_all(at("out"));
  }
}

}  // namespace
}  // namespace capstan
