// capstan plan --trace, and log.trace of a run: one step as a timeline.

#include <algorithm>
#include <sstream>

#include "plan_program.h"

namespace capstan::cli_test {
namespace {

class Traced : public Cli {
 protected:
  json trace(const std::string& name) const { return json::parse(slurp(at(name))); }
  static double end_of(const json& file) {
    double end = 0;
    for (const json& e : file["traceEvents"])
      if (e["ph"] == "X") end = std::max(end, e["ts"].get<double>() + e["dur"].get<double>());
    return 1e-6 * end;
  }
  static int64_t count_of(const json& file, const std::string& ph, const std::string& name) {
    return std::count_if(
        file["traceEvents"].begin(), file["traceEvents"].end(),
        [&](const json& e) { return e["ph"] == ph && e["name"].get<std::string>() == name; });
  }
  static Words plan(const Words& more) {
    Words words = {"plan", "pretrain", "--model_name=Llama-3.2-1B", "--train.max_seq_length=1024",
                   "--train.micro_batch_size=2"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
};

TEST_F(Traced, ThePlannedStepOfRanksEndsWithTheStep) {
  const Outcome o = run(plan({"--gpu=a100-80-sxm", "--devices=4", "--strategy=zero3",
                              "--train.global_batch_size=16", "--trace=step.json", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"trace: wrote step.json: one simulated step of "});
  const double seconds = json::parse(o.out)["time"]["step_seconds"];
  const json file = trace("step.json");
  EXPECT_NEAR(end_of(file), seconds, 1e-9 * seconds);
  EXPECT_GT(count_of(file, "X", "wait"), 0);
  EXPECT_GT(count_of(file, "X", "all_gather"), 16) << "of each block, in both passes";
  EXPECT_GT(count_of(file, "C", "memory (bytes)"), 100);
  EXPECT_EQ(file["otherData"]["time"], "simulated");
}

TEST_F(Traced, StagesOfAPipelineAreProcesses) {
  const Outcome o = run(plan({"--gpu=h100-sxm", "--devices=4", "--pipeline_parallel=4",
                              "--train.global_batch_size=12", "--trace=step.json", "--json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  const json file = trace("step.json");
  const double seconds = json::parse(o.out)["time"]["step_seconds"];
  EXPECT_NEAR(end_of(file), seconds, 1e-9 * seconds);
  EXPECT_EQ(count_of(file, "M", "process_name"), 4);
  EXPECT_EQ(count_of(file, "X", "forward 5"), 4) << "the last of six micro-batches";
  EXPECT_EQ(count_of(file, "s", "activations"), 6 * 3);
  EXPECT_EQ(count_of(file, "f", "gradients"), 6 * 3);
}

TEST_F(Traced, APlanSaysWhyThereIsNone) {
  expect_refused(2, plan({"--gpu=h200", "--search", "--trace=t.json"}), {"--trace is of one plan"});
  expect_refused(2, plan({"--accelerator=cpu", "--memory=900GiB", "--trace=t.json"}),
                 {"--trace shows times", "capstan bench"});
  const Outcome o = run(plan({"--gpu=h200", "--memory=3GiB", "--trace=t.json"}));
  EXPECT_EQ(o.code, 3);
  expect_holds(o.err, {"trace: t.json was not written: the run does not fit"});
  EXPECT_FALSE(fs::exists(at("t.json")));
}

// The time of a micro-batch of this step, by metrics.csv.
double logged_seconds(const std::string& csv, int step) {
  std::istringstream lines(csv);
  std::string line, cell;
  std::getline(lines, line);
  std::istringstream header(line);
  size_t column = 0;
  while (std::getline(header, cell, ',') && cell != "iter_time") ++column;
  while (step-- > 0) std::getline(lines, line);
  std::istringstream row(line);
  for (size_t i = 0; i <= column; ++i) std::getline(row, cell, ',');
  return std::stod(cell);
}

TEST_F(Traced, AStepOfARunTakesTheTimeOfItsMetrics) {
  const Words words = brief({"--model.hidden_size=64", "--model.intermediate_size=128",
                             "--model.num_hidden_layers=3", "--model.num_attention_heads=4",
                             "--log.trace=logs/step.json", "--log.trace_step=2"});
  const Outcome o = run(words);
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"trace: wrote logs/step.json: step 2\n"});
  const json file = trace("logs/step.json");
  EXPECT_EQ(count_of(file, "X", "step 2"), 1);
  EXPECT_EQ(count_of(file, "X", "micro"), 1);
  EXPECT_EQ(count_of(file, "X", "micro (2)"), 1);
  EXPECT_EQ(count_of(file, "X", "attention"), 2 * 3) << "two micro-batches of three blocks";
  EXPECT_GT(count_of(file, "C", "memory (bytes)"), 10);
  const double seconds =
      2 * logged_seconds(slurp(at("out/pretrain/logs/csv/version_0/metrics.csv")), 2);
  EXPECT_NEAR(end_of(file), seconds, 0.02 * seconds);
}

TEST_F(Traced, ATraceChangesNoBit) {
  train_tiny();
  const std::string weights = slurp(at(made) / "model.safetensors");
  train_tiny({"--log.trace=t.json", "--out_dir=other"});
  EXPECT_TRUE(weights == slurp(at("other/final/model.safetensors")));
  EXPECT_TRUE(fs::exists(at("t.json")));
}

TEST_F(Traced, SeveralRanksHaveThatOfTheFirst) {
  const Outcome o = run(tiny({"--devices=2", "--accelerator=cpu", "--log.trace=t.json"}));
  ASSERT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {"trace: wrote t.json: step 3 of rank 0, one of 2"});
  EXPECT_GT(count_of(trace("t.json"), "X", "wait"), 0) << "for the other rank";
  EXPECT_EQ(count_of(trace("t.json"), "M", "process_name"), 1);
}

TEST_F(Traced, ARunRefusesAStepThatItWillNotReach) {
  expect_refused(2, tiny({"--log.trace=t.json", "--log.trace_step=4"}),
                 {"log.trace_step: step 4 is to be traced, but the run has 3 steps"});
  expect_refused(2, tiny({"--log.trace_step=2"}), {"log.trace_step: there is no trace"});
}

}  // namespace
}  // namespace capstan::cli_test
