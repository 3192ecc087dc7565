#include <cstdlib>
#include <nlohmann/json.hpp>

#include "program.h"

namespace capstan::cli_test {
namespace {

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

// A model that knows two words by heart: every tokenizer keeps the space between them.
TEST_F(Cli, AContinuationKeepsItsSpace) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "red green ";
  write("text.txt", text);
  write("data.jsonl", "{\"instruction\": \"red\", \"output\": \" green\"}\n");
  for (const char* kind : {"model", "metaspace", "pieces", "bytes"}) {
    SCOPED_TRACE(kind);
    const fs::path tokenizer = fs::path(CAPSTAN_SOURCE_DIR) / "tests/golden_tokens" / kind;
    const Outcome plan = run({"plan", "pretrain", "--tokenizer_dir=" + tokenizer.string(),
                              "--data.train_data_path=text.txt"});
    if (plan.err.find("needs ICU, but this program was built without it") != std::string::npos)
      continue;  // the other kinds still count
    train_tiny({"--tokenizer_dir=" + tokenizer.string(), "--train.max_steps=100",
                "--optimizer.lr=0.02", "--train.log_interval=1000"});
    const Outcome o = run({"generate", made, "--prompt=red green", "--temperature=0",
                           "--prompt_style=default", "--max_new_tokens=6"});
    EXPECT_EQ(o.code, 0) << o.err;
    expect_holds(o.out, {"red green red"});
    const Outcome talked =
        run_with("red green\n\n",
                 {"chat", made, "--temperature=0", "--max_new_tokens=6", "--prompt_style=default"});
    expect_holds(talked.out, {">> Reply:  red"});
    const Outcome shown =
        run({"finetune_full", made, "--data=JSON", "--data.json_path=data.jsonl",
             "--data.prompt_style=default", "--data.val_split_fraction=0", "--train.epochs=2",
             "--train.global_batch_size=1", "--train.lr_warmup_steps=0", "--optimizer.lr=1e-9",
             "--eval.interval=1", "--eval.max_new_tokens=6", "--out_dir=shown"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    expect_holds(shown.out + shown.err, {"red\n gre"});
  }
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
  expect_holds(o.err, {"warning: stopped at the end of the model's 64 positions", "60 tokens in "});
  EXPECT_LE(o.out.size(), 3u + 60 + 1);
  expect_refused(2, {"generate", made, "--prompt", std::string(70, 'a')},
                 {"--prompt: 71 tokens", "64 positions"});
}

TEST_F(Cli, AHeadThatIsNotUsedIsToldOf) {
  train_tiny();
  EXPECT_EQ(run({"generate", made, "--max_new_tokens=1"}).err.find("lm_head"), std::string::npos);
  auto config = nlohmann::json::parse(slurp(at(made) / "config.json"));
  config["tie_word_embeddings"] = true;
  write(made + "/config.json", config.dump());
  fs::remove(at(made) / "MANIFEST.json");
  const Outcome o = run({"generate", made, "--max_new_tokens=1"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"the files have a different lm_head.weight", "tie_word_embeddings"});
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
  expect_refused(2, {"generate", "x", "several", "words"}, {"'several': unexpected argument"});
}

TEST_F(Cli, GenerateRefusesDamagedFoldersAndNamesTheFile) {
  expect_refused(4, {"generate", "none"}, {"none: no such folder"});
  expect_refused(4, {"generate", std::string(5000, 'x')}, {"no such folder"});
  fs::create_directory(at("empty"));
  expect_refused(4, {"generate", "empty"}, {"empty/config.json"});

  train_tiny();
  expect_refused(2, {"generate", made, "--precision=8-true"}, {"'8-true' is not one of"});
  expect_refused(2, {"generate", made, "--precision=bf16-mixed"}, {"bf16-mixed is for training"});
  expect_refused(2, {"generate", made, "--precision=fp8-mixed"}, {"fp8-mixed is for training"});
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
TEST_F(Cli, ConvertTakesNothingAwayThatIsNeeded) {
  train_tiny({"--train.save_interval=1"});
  fs::copy(at(made), at("r"), fs::copy_options::recursive);
  fs::copy(at(made), at("r/orig"), fs::copy_options::recursive);
  for (const char* from : {"r/orig", "r"})
    expect_refused(2, {"convert", from, "r"}, {"r: expected another folder to write to; ", from});
  EXPECT_TRUE(fs::exists(at("r/orig/model.safetensors")));
  const std::string step = "out/pretrain/step-00000001";
  ASSERT_TRUE(fs::exists(at(step)));
  expect_refused(2, {"convert", made, step},
                 {"has a training checkpoint that a run can resume from"});
  EXPECT_EQ(run({"convert", made, "r2"}).code, 0);
  EXPECT_EQ(run({"convert", made, "r2"}).code, 0) << "a model is replaced";
}

TEST_F(Cli, EvaluateCountsWhatIsHeldOut) {
  train_tiny();
  const std::string record = "{\"instruction\": \"a\", \"output\": \"b\"}\n";
  write("tv/train.jsonl", record);
  write("tv/val.jsonl", record + record);
  const Outcome o = run({"evaluate", made, "--data=tv", "--data.prompt_style=default"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {" of 2 samples"});
  expect_holds(o.err, {"evaluating the held-out split (2 samples)"});
}

TEST_F(Cli, AQuestionThatIsTooLongDoesNotEndAChat) {
  train_tiny();
  const Outcome o = run_with("hi\n" + std::string(200, 'x') + "\nyes\r\n\r\nnever\n",
                             {"chat", made, "--max_new_tokens=4"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"ask a shorter one"});
  size_t replies = 0;
  for (size_t at = 0; (at = o.out.find(">> Reply", at)) != std::string::npos; ++at) ++replies;
  EXPECT_EQ(replies, 2u) << o.out;
}

TEST_F(Cli, LinesForStreamsThatAreClosedGoIntoNoFile) {
  std::string line = fmt::format("cd '{}' && '{}'", folder.path().string(), CAPSTAN_PROGRAM);
  for (const std::string& word : tiny({"--train.log_interval=1"})) line += " '" + word + "'";
  EXPECT_EQ(std::system((line + " <&- >&- 2>&-").c_str()), 0);
  const fs::path csv = at("out/pretrain/logs/csv/version_0/metrics.csv");
  EXPECT_EQ(slurp(csv).find("Epoch"), std::string::npos) << slurp(csv);
  EXPECT_TRUE(fs::exists(at(made)));
}

TEST_F(Cli, PlanPrintsJsonWhateverTheNamesAre) {
  train_tiny();
  fs::copy(at(made),
           at("b\xff"
              "d"),
           fs::copy_options::recursive);
  const Outcome o = run({"plan",
                         "b\xff"
                         "d",
                         "--json", "--memory=8GiB"});
  EXPECT_NE(o.code, 1) << o.err;
  EXPECT_EQ(o.out.rfind("{", 0), 0u) << o.out << o.err;
}

}  // namespace
}  // namespace capstan::cli_test
