// Runs that look at their validation loss: train.keep_best, train.patience.

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "program.h"

namespace capstan::cli_test {
namespace {

class Best : public Cli {
 protected:
  void SetUp() override {
    // What is held out differs from what is learned, so the loss on it rises after a while.
    std::string text;
    for (int i = 0; i < 60; ++i) text += fmt::format("line {} has {} and {}.\n", i, i * i, 7 * i);
    write("short.txt", text);
  }
  static Words words(const std::string& out_dir, const Words& more = {}) {
    Words all =
        tiny({"--data.train_data_path=short.txt", "--data.val_split_fraction=0.3",
              "--train.max_steps=300", "--eval.interval=10", "--optimizer.lr=0.03",
              "--train.schedule=constant", "--train.max_seq_length=32",
              "--train.global_batch_size=2", "--train.micro_batch_size=2", "--out_dir=" + out_dir});
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string model(const std::string& name) const { return slurp(at(name) / "model.safetensors"); }
  // After which step the best model was.
  int64_t best_step(const std::string& run) const {
    return nlohmann::json::parse(slurp(at(run) / "best/training_state/state.json"))["best_step"];
  }
};

TEST_F(Best, KeepsTheModelWithTheLowestValidationLoss) {
  const Outcome o = run(words("run", {"--train.keep_best=true"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"Best Val Loss", "run/best"});
  const int64_t step = best_step("run");
  ASSERT_GT(step, 0);
  ASSERT_LT(step, 300);
  EXPECT_NE(model("run/best") == model("run/final"), true);
  ASSERT_EQ(run(words("until", {fmt::format("--train.max_steps={}", step)})).code, 0);
  EXPECT_EQ(model("run/best") == model("until/final"), true);
  expect_holds(slurp(at("run/report.html")),
               {"The validation loss was lowest after step", "best validation loss"});
  EXPECT_EQ(run({"evaluate", "run/best", "--data=short.txt"}).code, 0);
}

TEST_F(Best, PatienceEndsTheRunResumedOrNot) {
  const Words patient = {"--train.keep_best=true", "--train.patience=3"};
  const Outcome o = run(words("whole", patient));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"train.patience ended the run after step", "that model is whole/best",
                       "3 validations"});
  expect_holds(slurp(at("whole/report.html")), {"Stopped by train.patience"});
  const std::string ended = model("whole/final");
  Words once_more = patient;
  once_more.emplace_back("--resume=auto");
  const Outcome nothing = run(words("whole", once_more));
  EXPECT_EQ(nothing.code, 0) << nothing.err;
  expect_holds(nothing.out, {"nothing left to do", "train.patience ended the run"});
  EXPECT_EQ(model("whole/final") == ended, true);
  const int64_t step = best_step("whole");
  // Stopped between the best validation and the end, and resumed.
  Words part = patient;
  part.insert(part.end(), {fmt::format("--train.max_steps={}", step + 10),
                           "--train.save_interval=10", "--train.patience=3"});
  ASSERT_EQ(run(words("parts", part)).code, 0);
  fs::remove_all(at("parts/final"));
  Words rest = patient;
  rest.insert(rest.end(), {"--resume=auto", "--train.save_interval=10"});
  const Outcome resumed = run(words("parts", rest));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  expect_holds(resumed.out, {"train.patience ended the run after step"});
  EXPECT_EQ(run(words("parts", rest)).code, 0);  // nothing is left to do there, either
  for (const char* part_of : {"best", "final"})
    EXPECT_EQ(model(fmt::format("whole/{}", part_of)) == model(fmt::format("parts/{}", part_of)),
              true)
        << part_of;
}

TEST_F(Best, AnEarlierRunsBestIsMovedAway) {
  ASSERT_EQ(run(words("run", {"--train.keep_best=true", "--train.max_steps=20"})).code, 0);
  ASSERT_EQ(run(words("run", {"--train.max_steps=20"})).code, 0);
  EXPECT_FALSE(fs::exists(at("run/best")));
  EXPECT_TRUE(fs::exists(at("run/previous-1/best/model.safetensors")));
}

TEST_F(Best, AModelThatTheRunWouldMoveIsRefused) {
  ASSERT_EQ(run(words("run", {"--train.keep_best=true", "--train.max_steps=20"})).code, 0);
  write("data.jsonl", "{\"instruction\": \"a\", \"output\": \"b\"}\n");
  expect_refused(2,
                 {"finetune", "run/best", "--data=JSON", "--data.json_path=data.jsonl",
                  "--data.val_split_fraction=0", "--out_dir=run", "--accelerator=cpu"},
                 {"run/best", "another --out_dir"});
}

TEST_F(Best, NeedsSamplesThatAreHeldOut) {
  for (const char* key : {"--train.keep_best=true", "--train.patience=2"})
    expect_refused(2, words("run", {key, "--data.val_split_fraction=0"}),
                   {"needs samples that are held out", "data.val_split_fraction"});
}

}  // namespace
}  // namespace capstan::cli_test
