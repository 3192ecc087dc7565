// Data as people bring them, and what of them a terminal shows.

#include <fcntl.h>
#include <poll.h>
#include <pty.h>

#include <array>

#include "tiny_model.h"

namespace capstan::cli_test {
namespace {

TEST_F(Cli, PretrainLearnsTheTextsOfRecordsAndNotTheirSyntax) {
  std::string lines, list;
  for (int i = 0; i < 20; ++i) {
    const std::string text = fmt::format("Llama {} eats grass.", i);
    lines += nlohmann::json{{"text", text}, {"id", i}}.dump() + "\n";
    list += (i == 0 ? "" : ",") + nlohmann::json{{"body", text}}.dump();
  }
  write("texts.jsonl", lines);
  write("texts.json", "{\"data\": [" + list + "]}");
  const Outcome o = run(tiny({"--data.train_data_path=texts.jsonl"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out + o.err, {"19 training samples, 1 held out"});
  train_tiny({"--data.train_data_path=texts.json", "--data.columns.text=body", "--out_dir=again"});
  EXPECT_TRUE(slurp(at(made) / "model.safetensors") == slurp(at("again/final/model.safetensors")))
      << "the same texts";
  const Outcome e = run({"evaluate", made, "--data=texts.jsonl"});
  EXPECT_EQ(e.code, 0) << e.err;
  expect_holds(e.out, {" of 20 samples"});
}

TEST_F(Cli, PretrainRefusesWhatIsNoText) {
  write("a.csv", "text\nhello\n");
  expect_refused(4, tiny({"--data.train_data_path=a.csv"}),
                 {"a.csv: expected text, found a table", "--data JSON --data.json_path FILE"});
  write("a.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n");
  expect_refused(4, tiny({"--data.train_data_path=a.jsonl"}),
                 {"a.jsonl:1: expected a document with the field \"text\""});
  write("a.parquet", "PAR1");
  expect_refused(4, tiny({"--data.train_data_path=a.parquet"}), {"a Parquet file; convert it"});
}

TEST_F(Cli, PretrainReadsTheFoldersInAFolder) {
  write("texts/a/one.txt", "Once there was a llama. It ate grass.");
  write("texts/b/c/two.txt", "Once there was a llama. It ate hay.");
  write("texts/notes.md", "not read");
  const Outcome o = run(tiny({"--data.train_data_path=texts"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out + o.err,
               {"1 training sample, 1 held out", "1 file is not read (texts/notes.md)"});
}

class BroughtData : public TinyModel {
 protected:
  BroughtData()
      : TinyModel(8, [](int i) {
          return nlohmann::json{{"instruction", fmt::format("\x1b]0;title\x07 say {}", i)},
                                {"output", fmt::format("\x1b[31m{}", i)}};
        }) {}

  static Words finetune(const Words& more) {
    Words words = {"finetune_full",
                   "tiny/final",
                   "--train.max_steps=1",
                   "--train.global_batch_size=2",
                   "--train.lr_warmup_steps=0",
                   "--eval.max_new_tokens=4",
                   "--out_dir=out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(BroughtData, ATableWithColumnsOfItsOwn) {
  write("t.csv", "frage,antwort\n\"Say, 1\",one\nSay 2,\"\"\"two\"\"\"\n");
  const Words words = finetune({"--data.json_path=t.csv", "--data.columns.instruction=frage",
                                "--data.columns.output", "antwort", "--data.val_split_fraction=0"});
  const Outcome o = run(words);
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out + o.err, {"2 training samples, 0 held out"});
  expect_holds(slurp(at("out/final/hyperparameters.yaml")), {"columns.instruction: frage\n"});
  const Outcome e = run({"evaluate", "out/final", "--data=t.csv",
                         "--data.columns.instruction=frage", "--data.columns.output=antwort"});
  EXPECT_EQ(e.code, 0) << e.err;
  expect_refused(4, finetune({"--data.json_path=t.csv"}),
                 {"t.csv:2: expected the field \"instruction\", found \"antwort, frage\"",
                  "--data.columns.instruction COLUMN"});
  expect_refused(2,
                 finetune({"--data.json_path=t.csv", "--data.columns.text=frage",
                           "--data.columns.output=antwort"}),
                 {"data.columns: expected the columns of one record format, found several"});
}

TEST_F(BroughtData, ConversationsWithoutATemplateAreToldOf) {
  write("chat.jsonl", "{\"messages\": [\"hi\", \"ho\"]}\n{\"messages\": [\"a\", \"b\"]}\n");
  const Outcome o = run(finetune({"--data.json_path=chat.jsonl"}));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out + o.err,
               {"2 of 2 samples are conversations, but the model has no known chat template",
                "prompt style alpaca, and prompts are trained on like answers"});
}

// What data, names and models hold reaches no terminal but as text.
TEST_F(BroughtData, EscapesInDataAreShownAsSuch) {
  const Outcome o =
      run(finetune({"--data.json_path=data.jsonl", "--eval.initial_validation=true"}));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out + o.err, {"\\x1b]0;title\\x07 say "});
  EXPECT_EQ((o.out + o.err).find('\x1b'), std::string::npos);
  EXPECT_EQ((o.out + o.err).find('\x07'), std::string::npos);
  for (const Words& words :
       {finetune({"--data.json_path=no\x1b[2Jne.json"}), Words{"generate", "no\x1b[2Jne"}}) {
    expect_refused(4, words, {"no\\x1b[2Jne"});
    EXPECT_EQ(slurp(at("stderr")).find('\x1b'), std::string::npos);
  }
}

TEST_F(BroughtData, GeneratedTextReachesATerminalWithoutEscapes) {
  int here = -1, there = -1;
  std::array<char, 256> name{};
  ASSERT_EQ(openpty(&here, &there, name.data(), nullptr, nullptr), 0);
  const Words words = {"generate", "tiny/final", "--prompt=\x1b[31mone\ttwo", "--max_new_tokens=8"};
  EXPECT_EQ(run(words, name.data()).code, 0);
  std::string shown;
  pollfd ready{here, POLLIN, 0};
  while (poll(&ready, 1, shown.empty() ? 2000 : 50) > 0) {
    std::array<char, 4096> piece{};
    const ssize_t n = read(here, piece.data(), piece.size());
    if (n <= 0) break;
    shown.append(piece.data(), static_cast<size_t>(n));
  }
  close(here), close(there);
  EXPECT_TRUE(shown.starts_with("\\x1b[31mone")) << shown;
  EXPECT_EQ(shown.find('\x1b'), std::string::npos) << shown;
  // A file gets the text as it is.
  EXPECT_TRUE(run(words).out.starts_with("\x1b[31mone\ttwo"));
}

}  // namespace
}  // namespace capstan::cli_test
