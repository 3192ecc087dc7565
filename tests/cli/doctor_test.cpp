#include <nlohmann/json.hpp>

#include "program.h"
#include "tensor/device.h"

namespace capstan::cli_test {
namespace {

TEST_F(Cli, DoctorPrintsOneLineForEachFinding) {
  const Outcome o = run({"doctor"});
  EXPECT_TRUE(o.code == 0 || o.code == 1) << o.err;
  EXPECT_EQ(o.err, "");
  expect_holds(o.out, {"program: capstan ", "BLAS: ", "CPU: ", "memory: ", "product on the CPU: ",
                       "NVIDIA driver: ", "disk: ", "open files: "});
  std::istringstream lines(o.out);
  bool problem = false;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("ok ") || line.starts_with("note ") ||
                line.starts_with("problem "))
        << line;
    problem = problem || line.starts_with("problem ");
  }
  EXPECT_EQ(o.code, problem ? 1 : 0);
  EXPECT_FALSE(fs::exists(at("out"))) << "it only looks";
}

TEST_F(Cli, DoctorPrintsJson) {
  const Outcome o = run({"doctor", "--json", "--out_dir=results"});
  const auto json = nlohmann::json::parse(o.out, nullptr, false);
  ASSERT_TRUE(json.is_object()) << o.out;
  EXPECT_EQ(o.code, json.value("problems", -1) == 0 ? 0 : 1);
  ASSERT_GT(json["findings"].size(), 8u);
  for (const auto& f : json["findings"])
    for (const char* key : {"severity", "about", "found", "advice"})
      EXPECT_TRUE(f.contains(key)) << f.dump();
}

TEST_F(Cli, DoctorSeesThatAFileIsNoFolder) {
  write("results", "");
  for (const char* out : {"--out_dir=results", "--out_dir=results/run"}) {
    const Outcome o = run({"doctor", out});
    EXPECT_EQ(o.code, 1);
    expect_holds(o.out, {"results: is a file", "choose a writable folder"});
  }
}

TEST_F(Cli, DoctorWritesAReportOfTheLastRun) {
  train_tiny();
  const Outcome o = run({"doctor", "--out_dir=out/pretrain", "--report=report.md"});
  EXPECT_LE(o.code, 1) << o.err;
  expect_holds(o.err, {"the report is in report.md"});
  expect_holds(slurp(at("report.md")),
               {"# Bug report of capstan", "ok      program:", "final/model.safetensors",
                "hidden_size: 16", "epoch,iter,iter_time", "OMP_NUM_THREADS=1"});
}

TEST_F(Cli, DoctorRefusesWhatItDoesNotKnow) {
  expect_refused(2, {"doctor", "--jsn"}, {"did you mean --json?"});
}

TEST_F(Cli, AnAcceleratorIsNamedOrRefused) {
  train_tiny();
  for (const char* command : {"generate", "chat", "evaluate", "merge_lora"}) {
    expect_refused(2, {command, made, "--accelerator=tpu"}, {"--accelerator", "tpu"});
    expect_holds(run({command, "--help"}).out, {"--accelerator", "auto", "cuda"});
  }
  const Outcome cpu = run({"generate", made, "--max_new_tokens=4", "--accelerator=cpu"});
  EXPECT_EQ(cpu.code, 0) << cpu.err;
  if (cuda_present()) {
    EXPECT_EQ(run({"generate", made, "--max_new_tokens=4", "--accelerator=gpu"}).code, 0);
    EXPECT_EQ(run({"evaluate", made, "--data=text.txt", "--accelerator=cuda"}).code, 0);
    return;
  }
  for (const Words& words : {Words{"generate", made, "--accelerator=cuda"},
                             Words{"evaluate", made, "--data=text.txt", "--accelerator=gpu"}})
    expect_refused(5, words, {"cuda requested, but it cannot be used", "--accelerator cpu"});
}

}  // namespace
}  // namespace capstan::cli_test
