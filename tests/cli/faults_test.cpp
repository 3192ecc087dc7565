// What disks, shells and other processes do to a run: one line that tells it, or nothing at all.

#include <sys/stat.h>

#include "checkpoint/manifest.h"
#include "support/sanitized.h"
#include "tensor/device.h"
#include "tiny_model.h"

namespace capstan::cli_test {
namespace {

nlohmann::json record(int i) {
  return {{"instruction", "Say " + std::to_string(i)}, {"output", std::to_string(i)}};
}

class Faults : public TinyModel {
 protected:
  Faults() : TinyModel(12, record) {}

  // By a shell that does something first. 124: it did not end in time.
  Outcome in_shell(const std::string& first, const Words& words) const {
    std::string command = fmt::format("cd '{}'; {}; exec timeout 20 '{}'", folder.path().string(),
                                      first, CAPSTAN_PROGRAM);
    for (const std::string& w : words) command += " '" + w + "'";
    const int status = std::system(
        fmt::format("({}) > '{}' 2> '{}'", command, at("stdout").string(), at("stderr").string())
            .c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(at("stdout")),
            slurp(at("stderr"))};
  }
  void expect_one_line(int code, const std::string& first, const Words& words,
                       const Words& parts) const {
    SCOPED_TRACE(first + ": " + testing::PrintToString(words));
    const Outcome o = in_shell(first, words);
    EXPECT_EQ(o.code, code) << o.err;
    const size_t error = o.err.find("error: ");
    ASSERT_NE(error, std::string::npos) << o.err;
    EXPECT_EQ(o.err.find('\n', error), o.err.size() - 1) << o.err;
    expect_holds(o.err.substr(error), parts);
  }

  Words finetune(const Words& more = {}) const {
    Words words = {"finetune_full",
                   "tiny/final",
                   "--data=JSON",
                   "--data.json_path=data.jsonl",
                   "--train.global_batch_size=4",
                   "--train.micro_batch_size=4",
                   "--train.lr_warmup_steps=0",
                   "--train.max_steps=2",
                   "--out_dir=out"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // Waits until the run has logged a step: it trains, and has read what it reads.
  bool trains(const std::string& out, pid_t pid) const {
    for (int i = 0; i < 20'000; ++i) {
      const std::string csv = slurp(at(out + "/logs/csv/version_0/metrics.csv"));
      if (std::count(csv.begin(), csv.end(), '\n') > 1) return !fs::exists(at(out + "/final"));
      int status = 0;
      if (waitpid(pid, &status, WNOHANG | WNOWAIT) == pid) return false;
      ::usleep(500);
    }
    return false;
  }

  const std::string model = "checkpoints/tiny/final/";
};

TEST_F(Faults, APipeInThePlaceOfAFileIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const std::string none = ":";
  expect_one_line(4, none, finetune({"--config=pipe"}), {"pipe"});
  expect_one_line(4, none, finetune({"--data.json_path=pipe"}), {"pipe", "found a pipe"});
  expect_one_line(4, none, tiny({"--data.train_data_path=pipe"}), {"pipe"});
  ASSERT_TRUE(fs::create_directory(at("texts")));
  write("texts/a.txt", "Once there was a llama.\n");
  ASSERT_EQ(::mkfifo(at("texts/b.txt").c_str(), 0600), 0);
  expect_one_line(4, none, tiny({"--data.train_data_path=texts"}), {"texts/b.txt", "found a pipe"});
  Words planned = tiny({"--calibration=pipe"});
  planned.insert(planned.begin(), "plan");
  expect_one_line(4, none, planned, {"pipe", "found a pipe"});
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json",
                           "tokenizer_config.json", "model.safetensors", "MANIFEST.json"}) {
    fs::rename(at(model + name), at("kept"));
    fs::rename(at("pipe"), at(model + name));
    const bool tokenizer = std::string(name) == "tokenizer.json";  // says that there is none
    expect_one_line(4, none, finetune(), {"tiny/final", tokenizer ? "tokenizer.json" : name});
    fs::rename(at(model + name), at("pipe"));
    fs::rename(at("kept"), at(model + name));
  }
  EXPECT_EQ(run(finetune()).code, 0) << "as it was";
}

TEST_F(Faults, ALimitOfFileSizesIsToldWithTheFile) {
  expect_one_line(4, "ulimit -f 32", tiny({"--out_dir=x"}),
                  {"optimizer.safetensors: cannot write the file: File too large", "ulimit -f"});
  EXPECT_FALSE(fs::exists(at("x/final")));
  EXPECT_EQ(in_shell("ulimit -f 0", {"--version"}).code, 4) << "of what is printed, too";
}

TEST_F(Faults, ALimitOfAddressSpaceEndsInSecondsWithAClearWord) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more address space than any limit";
  if (kWithCuda) GTEST_SKIP() << "CUDA's libraries alone take more address space";
  // No stack fits for a thread that a library starts before main.
  const Outcome alone = in_shell(
      "export OPENBLAS_NUM_THREADS=16; ulimit -s 1000000; ulimit -v 600000", {"--version"});
  EXPECT_EQ(alone.code, 0) << alone.err;
  ::setenv("OMP_NUM_THREADS", "2", 1);
  // As on a machine with many cores, where OpenBLAS would have as many threads.
  for (const char* cores : {"", "OPENBLAS_NUM_THREADS=16; export OPENBLAS_NUM_THREADS; "}) {
    const Outcome roomy = in_shell(std::string(cores) + "ulimit -v 2000000", tiny());
    EXPECT_EQ(roomy.code, 0) << roomy.err;
    for (const char* limit : {"ulimit -v 350000", "ulimit -v 200000", "ulimit -d 200000"})
      expect_one_line(
          3, cores + std::string(limit), tiny(),
          {"does not fit: this process is limited to ", "(ulimit -v or -d)", "OMP_NUM_THREADS"});
  }
}

TEST_F(Faults, MoreThreadsThanThereCanBeAreRefusedInOneLine) {
  for (const char* threads : {"100000", "2147483647", "2147483648"})
    expect_one_line(
        2, fmt::format("OMP_NUM_THREADS={}; export OMP_NUM_THREADS", threads), tiny(),
        {fmt::format("OMP_NUM_THREADS: {} threads requested; expected 1 to ", threads)});
}

// OpenBLAS would end the process by SIGINT, as if the user had.
TEST_F(Faults, ALimitOfProcessesEndsWithAClearWord) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer must be loaded before any other library";
  std::string script = "export OPENBLAS_NUM_THREADS=16 OMP_NUM_THREADS=3 LD_PRELOAD=";
  script += CAPSTAN_FAIL_THREADS "; ulimit -u 1; exec \"$@\"";
  Words words = {"bash", "-c", script, "bash", CAPSTAN_PROGRAM};
  for (const std::string& word : tiny()) words.push_back(word);
  const Outcome o = finish(start_program("/bin/bash", words));
  EXPECT_EQ(o.code, 3);
  EXPECT_EQ(o.err,
            "error: does not fit: 7 threads cannot start: Resource temporarily unavailable; raise "
            "the limit of processes (ulimit -u, or that of the container), or set OMP_NUM_THREADS "
            "to fewer\n");
}

TEST_F(Faults, LimitsOfTheProcessCountAsFreeMemory) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer takes more address space than any limit";
  if (kWithCuda) GTEST_SKIP() << "CUDA's libraries alone take more address space";
  const Words large = brief({"--model.hidden_size=1024", "--model.intermediate_size=4096",
                             "--model.num_hidden_layers=16", "--model.num_attention_heads=8"});
  for (const char* limit : {"ulimit -v 1500000", "ulimit -d 1500000"}) {
    expect_one_line(3, limit, large, {"does not fit: needs "});
    Words plan = large;
    plan.insert(plan.begin(), "plan");
    const Outcome o = in_shell(limit, plan);
    EXPECT_EQ(o.code, 3) << o.out << o.err;
    expect_holds(o.out, {"does not fit: needs "});
    expect_holds(in_shell(limit, {"doctor"}).out, {"limited to 1.43 GiB"});
  }
}

// Read once, at the start.
TEST_F(Faults, ASourceThatChangesDuringTheRunChangesNoCheckpoint) {
  const std::string tokenizer = slurp(at(model + "tokenizer.json"));
  const pid_t pid = start(finetune({"--train.max_steps=60", "--train.save_interval=2"}));
  const bool in_time = trains("out", pid);
  write(model + "tokenizer.json", "");
  fs::remove(at(model + "tokenizer_config.json"));
  const Outcome o = finish(pid);
  ASSERT_TRUE(in_time) << o.err;
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(slurp(at("out/final/tokenizer.json")) == tokenizer);
  EXPECT_TRUE(fs::exists(at("out/final/tokenizer_config.json")));
  EXPECT_NO_THROW(verify_checkpoint(at("out/final")));
}

TEST_F(Faults, ATokenCacheThatIsCutDuringTheRunHarmsNothing) {
  ASSERT_EQ(run(finetune({"--out_dir=first"})).code, 0);
  const pid_t pid = start(finetune({"--train.max_steps=60", "--train.save_interval=2"}));
  const bool in_time = trains("out", pid);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(at("cache")))
    if (entry.path().extension() == ".tokens") fs::resize_file(entry.path(), 0), ++files;
  const Outcome o = finish(pid);
  ASSERT_TRUE(in_time) << o.err;
  EXPECT_GE(files, 1);
  EXPECT_EQ(o.code, 0) << o.err;
}

class DiskFaults : public Faults {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "a sanitizer must be loaded before any other library";
  }
  static std::string with(const std::string& fault) {
    return fmt::format(
        "LD_PRELOAD='{}' {}; export LD_PRELOAD CAPSTAN_FAIL_READ CAPSTAN_FAIL_SYNC "
        "CAPSTAN_SLOW_SYNC",
        CAPSTAN_FAIL_FILES, fault);
  }
};

TEST_F(DiskFaults, ABlockThatCannotBeReadIsToldOrPassedOver) {
  const Words words = tiny({"--resume=auto", "--out_dir=x", "--train.max_steps=6",
                            "--train.save_interval=2", "--train.save_async=false"});
  for (const char* file :
       {"training_state/state.json", "MANIFEST.json", "training_state/optimizer.safetensors"}) {
    SCOPED_TRACE(file);
    fs::remove_all(at("x"));
    ASSERT_EQ(run(words).code, 0);
    fs::remove_all(at("x/final"));
    const std::string bad = fmt::format("step-00000004/{}", file);
    const Outcome o = in_shell(with(fmt::format("CAPSTAN_FAIL_READ={}@17", bad)), words);
    EXPECT_EQ(o.code, 0) << o.err;
    expect_holds(
        o.err, {"skipped a damaged checkpoint: x/" + bad + ": cannot read byte 17: Input/output"});
    expect_holds(o.out, {"resumed from x/step-00000002: 2 of 6"});
  }
  fs::remove(at(model + "MANIFEST.json"));
  expect_one_line(4, with("CAPSTAN_FAIL_READ=final/model.safetensors@9999"), finetune(),
                  {"final/model.safetensors: cannot read byte 9999: Input/output error"});
}

// Rank 0 writes; the others end as a consequence, and do not speak of it.
TEST_F(DiskFaults, OnSeveralRanksAreToldOnceWithTheirOwnCode) {
  for (const char* async : {"true", "false"})
    expect_one_line(4, with("CAPSTAN_FAIL_SYNC=metrics.csv"),
                    tiny({"--out_dir=x", "--train.save_interval=1", "--devices=3",
                          "--accelerator=cpu", std::string("--train.save_async=") + async}),
                    {"error: ", "metrics.csv: cannot write: Input/output error"});
}

TEST_F(DiskFaults, TheCheckBeforeTheFirstStepLeavesNothing) {
  const Outcome o = in_shell(with("CAPSTAN_FAIL_SYNC=/x"), tiny({"--out_dir=x"}));
  EXPECT_EQ(o.code, 4) << o.err;
  expect_holds(o.err, {"/x: cannot sync: Input/output error"});
  EXPECT_FALSE(fs::exists(at("x"))) << "the folder is removed if it is empty";
}

// The rank that leads writes the report while the others already wait for it in the validation.
TEST_F(DiskFaults, ASlowDiskUnderTheReportIsNoSilence) {
  const Outcome o =
      in_shell(with("CAPSTAN_SLOW_SYNC=report.html.part"),
               tiny({"--out_dir=x", "--devices=2", "--accelerator=cpu", "--timeout=1"}));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(fs::exists(at("x/report.html")));
}

TEST_F(DiskFaults, MetricsAreOnTheDiskBeforeACheckpointHasItsName) {
  expect_one_line(4, with("CAPSTAN_FAIL_SYNC=metrics.csv"),
                  tiny({"--out_dir=x", "--train.save_interval=1"}),
                  {"metrics.csv: cannot write: Input/output error"});
  EXPECT_TRUE(fs::exists(at("x/logs/csv/version_0/metrics.csv")));
  for (const auto& entry : fs::directory_iterator(at("x")))
    EXPECT_FALSE(entry.path().filename().string().starts_with("step-")) << entry.path();
}

TEST_F(Faults, ABadRowOfMetricsIsPutAsideAndTheRunGoesOn) {
  const Words words =
      tiny({"--resume=auto", "--out_dir=x", "--train.max_steps=4", "--train.save_interval=2"});
  ASSERT_EQ(run(words).code, 0);
  fs::remove_all(at("x/final"));
  const std::string csv = "x/logs/csv/version_0/metrics.csv", rows = slurp(at(csv));
  const auto lines = std::count(rows.begin(), rows.end(), '\n');
  std::ofstream(at(csv), std::ios::app) << "1,2,oops\n1,2,3";
  const Outcome o = run(words);
  EXPECT_EQ(o.code, 0) << o.err;
  expect_holds(o.err, {fmt::format("{}:{}:5: expected", csv, lines + 1),
                       fmt::format("{}:{}:1: the line is cut short", csv, lines + 2),
                       "moved the line to " + csv + ".bad"});
  EXPECT_EQ(slurp(at(csv + ".bad")), "1,2,oops\n1,2,3\n");
}

TEST_F(Faults, FilesOfAModelAreCopiedAsTheyAreAndFromNowhereElse) {
  ASSERT_EQ(::chmod(at(model + "tokenizer.json").c_str(), 0600), 0);
  ASSERT_EQ(run(finetune()).code, 0);
  EXPECT_EQ(fs::status(at("out/final/tokenizer.json")).permissions(), fs::perms(0600));
  write("secret", "{}");
  fs::remove(at(model + "MANIFEST.json"));
  fs::remove(at(model + "tokenizer_config.json"));
  fs::create_symlink("../../../secret", at(model + "tokenizer_config.json"));
  const Words refused = {"tokenizer_config.json: expected a file of this folder, found a link to "};
  expect_one_line(4, ":", finetune({"--out_dir=new"}), refused);
  expect_one_line(4, ":", {"convert", model, "converted"}, refused);
  EXPECT_FALSE(fs::exists(at("new/final")));
  EXPECT_FALSE(fs::exists(at("converted")));
}

}  // namespace
}  // namespace capstan::cli_test
