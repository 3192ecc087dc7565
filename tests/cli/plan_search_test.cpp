// capstan plan --search: how GPUs best share the work.

#include <sstream>

#include "plan_program.h"

namespace capstan::cli_test {
namespace {

class PlanSearch : public Cli {
 protected:
  static Words words(const Words& more) {
    Words all = {"plan",
                 "--search",
                 "finetune_full",
                 "Llama-3.2-1B",
                 "--train.max_seq_length=1024",
                 "--train.global_batch_size=64",
                 "--tensor_parallel=2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(PlanSearch, PrintsTheBestAndTheCommandThatRunsIt) {
  const Outcome o = run(words({"--gpu=a100-80-sxm", "--devices=8", "--num_nodes=2"}));
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out,
               {"1.24 B parameters", "by the data sheet of a100-80-sxm", "16 GPUs", "tok/s/GPU",
                "mpirun -n 16 capstan finetune_full", "--checkpoint_dir Llama-3.2-1B",
                "--devices=8 --num_nodes=2", "--train.micro_batch_size="});
  EXPECT_EQ(o.out.find("--tensor_parallel=2 --"), std::string::npos) << "the search chooses it";
  std::istringstream lines(o.out);
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("capstan finetune_full") == std::string::npos) {
      EXPECT_LE(line.size(), 80U) << line;
    }
    rows += line.ends_with("%") ? 1 : 0;
  }
  EXPECT_EQ(rows, 10);
}

// The default micro-batch, which the search replaces, need not divide the global batch.
TEST_F(PlanSearch, TakesAnyGlobalBatchOnAnyNumberOfGpus) {
  const Outcome o =
      run({"plan", "--search", "pretrain", "--model_name=TinyLlama-1.1B", "--gpu=rtx4090",
           "--devices=3", "--train.max_seq_length=1024", "--train.global_batch_size=7"});
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.out, {"7 samples of 1024 tokens a step on 3 GPUs", "--train.micro_batch_size=1"});
}

TEST_F(PlanSearch, TheCommandIsOneThatPlansTheSame) {
  Words all = words({"--gpu=a100-80-sxm", "--devices=8", "--json"});
  const json out = json::parse(run(all).out);
  const json& best = out["best"][0];
  EXPECT_TRUE(out["fits"]);
  EXPECT_TRUE(out["calibration"]["data_sheet"]);
  EXPECT_EQ(out["best"].size(), 10U);
  EXPECT_LT(out["simulated"], out["considered"]);
  Words again = {"plan",
                 "finetune_full",
                 "Llama-3.2-1B",
                 "--train.max_seq_length=1024",
                 "--train.global_batch_size=64",
                 "--gpu=a100-80-sxm",
                 "--devices=8",
                 "--json"};
  for (const auto& [key, value] : best["keys"].items())
    again.push_back("--" + key + "=" + value.get<std::string>());
  const Outcome o = run(again);
  EXPECT_EQ(o.code, 0) << o.err;
  const json plain = json::parse(o.out);
  EXPECT_EQ(plain["time"]["step_seconds"], best["step_seconds"]);
  EXPECT_EQ(plain["memory"]["peak_bytes"], best["peak_bytes"]);
}

TEST_F(PlanSearch, SaysThatNothingFits) {
  const Outcome o = run(words({"--gpu=a100-80-sxm", "--memory=2GiB", "--devices=2"}));
  EXPECT_EQ(o.code, 3) << o.err;
  expect_holds(o.out, {"no mesh fits: each rank has ", "need at least "});
  const Outcome as_json =
      run(words({"--gpu=a100-80-sxm", "--memory=2GiB", "--devices=2", "--json"}));
  EXPECT_EQ(as_json.code, 3);
  EXPECT_FALSE(json::parse(as_json.out)["fits"]);
}

TEST_F(PlanSearch, NeedsTimes) {
  expect_refused(2, words({"--accelerator=cpu", "--memory=80GiB"}),
                 {"--search compares times", "capstan bench", "--gpu"});
  expect_refused(2, words({"--gpu=h200", "--devices=64", "--num_nodes=65"}),
                 {"expected at most 4096"});
}

}  // namespace
}  // namespace capstan::cli_test
