// Saves that fail or die at every one of their calls, and checkpoints with every kind of damage.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <fstream>
#include <random>

#include "base/files.h"
#include "checkpoint/find.h"
#include "checkpoint/manifest.h"
#include "checkpoint/quick_folder.h"
#include "checkpoint/small_run.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

struct Outcome {
  bool killed = false;
  int exit_code = 0;
  int64_t calls = 0;
  std::string message;
};

Outcome save_under_fault(const fs::path& dir, int64_t step, const char* mode, int64_t at,
                         const char* how) {
  const std::string command = fmt::format("exec '{}' '{}' {} {} {} {}", SAVE_UNDER_FAULT,
                                          dir.string(), step, mode, at, how);
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  char block[4096];
  for (size_t n; (n = ::fread(block, 1, sizeof block, pipe)) > 0;) output.append(block, n);
  const int status = ::pclose(pipe);
  Outcome o;
  o.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  o.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const size_t line = output.find('\n');
  o.calls = std::atoll(output.c_str());
  if (line != std::string::npos) o.message = output.substr(line + 1);
  return o;
}

struct Case {
  const char* mode;
  const char* how;
  const char* name;  // of the next checkpoint; the one before is step-000001 or final
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.mode << ", " << c.how << ", " << c.name;
}

class SaveUnderFault : public testing::TestWithParam<Case> {
 protected:
  // A complete checkpoint is there, loads, and is one of the two.
  void expect_old_or_new(const fs::path& out) {
    const CheckpointSearch found = newest_checkpoint(out);
    ASSERT_TRUE(found.newest.has_value());
    EXPECT_TRUE(found.skipped.empty()) << found.skipped.front();
    const int64_t step = found.newest->state.step;
    ASSERT_TRUE(step == 1 || step == 2) << step;
    loaded_.set(100);
    EXPECT_EQ(load_checkpoint(loaded_.model.queue, loaded_.model.params, loaded_.optimizer,
                              found.newest->dir),
              SmallRun::state(step));
    expected_.set(step);
    EXPECT_EQ(loaded_.bits() == expected_.bits(), true) << "step " << step;
    EXPECT_EQ(loaded_.optimizer.steps(), step);
  }
  // The next save needs nobody to clean up, and leaves nothing but itself.
  void expect_recovery(const fs::path& out, const char* name) {
    expected_.set(3);
    CheckpointSaver saver(expected_.model.queue, expected_.model.params, expected_.optimizer,
                          nullptr);
    SaveRequest request = SmallRun::request(out / name, 3);
    request.keep = 1;
    saver.save(request);
    EXPECT_EQ(newest_checkpoint(out).newest->state.step, 3);
    for (const auto& entry : fs::directory_iterator(out))
      EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
  }

  SmallRun loaded_, expected_;
};

TEST_P(SaveUnderFault, LeavesACompleteCheckpointWhicheverCallFails) {
  const Case c = GetParam();
  int failures = 0, deaths = 0;
  for (int64_t at = 1;; ++at) {
    SCOPED_TRACE(fmt::format("call {}", at));
    const QuickFolder folder;
    const fs::path out = folder / "out";
    SmallRun().save(out / (std::string(c.name) == "final" ? "final" : "step-000001"), 1);
    const Outcome o = save_under_fault(out / c.name, 2, c.mode, at, c.how);
    expect_old_or_new(out);
    failures += o.exit_code == 4;
    deaths += o.killed;
    if (o.exit_code != 0 && !o.killed) {
      EXPECT_EQ(o.exit_code, 4) << o.message;
      EXPECT_NE(o.message.find(out.string()), std::string::npos) << o.message;
    }
    if (!o.killed && o.calls < at) {
      EXPECT_EQ(o.exit_code, 0) << o.message;
      EXPECT_EQ(newest_checkpoint(out).newest->state.step, 2);
      EXPECT_GT(at, 40) << "hardly a call was seen";
      break;
    }
    expect_recovery(out, c.name);
    if (HasFatalFailure()) return;
  }
  const std::string mode = c.mode;
  EXPECT_GT(mode.starts_with("kill") ? deaths : mode == "short" ? 1 : failures, 0);
}

INSTANTIATE_TEST_SUITE_P(
    EveryCall, SaveUnderFault,
    testing::Values(Case{"enospc", "sync", "final"}, Case{"eio", "async", "final"},
                    Case{"full", "sync", "step-000002"}, Case{"short", "sync", "final"},
                    Case{"kill", "sync", "final"}, Case{"kill", "async", "step-000002"},
                    Case{"eio", "sync", "step-000002"}, Case{"kill-plain", "sync", "final"},
                    Case{"eio-plain", "sync", "final"}),
    [](const auto& test) {
      std::string name = fmt::format("{}_{}_{}", test.param.mode, test.param.how, test.param.name);
      for (char& ch : name)
        if (ch == '-') ch = '_';
      return name;
    });

TEST(CheckCanSave, TellsOfEveryCallThatFailsAndLeavesNothing) {
  int reservations = 0;
  for (int64_t at = 1;; ++at) {
    const QuickFolder folder;
    const Outcome o = save_under_fault(folder / "out" / "final", 1, "enospc", at, "check");
    EXPECT_TRUE(!fs::exists(folder / "out") || fs::is_empty(folder / "out")) << "call " << at;
    if (o.calls < at) {
      EXPECT_EQ(o.exit_code, 0) << o.message;
      break;
    }
    EXPECT_EQ(o.exit_code, 4) << "call " << at;
    reservations += o.message.find("cannot reserve space") != std::string::npos;
  }
  EXPECT_GE(reservations, 1);
}

TEST(DamagedCheckpoint, EveryFlippedBitAndEveryTruncationIsFoundAndTheFileNamed) {
  const QuickFolder folder;
  const fs::path dir = folder / "step-000001";
  SmallRun().save(dir, 1);
  EXPECT_NO_THROW(verify_checkpoint(dir));
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(dir))
    if (entry.is_regular_file()) files.push_back(entry.path());
  ASSERT_EQ(files.size(), 7u);
  std::mt19937_64 random(7);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int i = 0; i < 2000; ++i) {
    const fs::path& path = files[below(files.size())];
    const std::string whole = read_text(path);
    std::string damaged = whole;
    if (i % 4 == 0)
      damaged.resize(below(whole.size()));
    else
      damaged[below(whole.size())] ^= static_cast<char>(1 << below(8));
    std::ofstream(path, std::ios::binary) << damaged;
    const std::string message = message_of(Fault::file, [&] { verify_checkpoint(dir); });
    // A damaged manifest accuses itself, or a file that it no longer describes.
    const bool named = message.starts_with(path.string()) ||
                       (path.filename() == kManifest && message.starts_with(dir.string()));
    EXPECT_TRUE(named) << path << ": " << message;
    std::ofstream(path, std::ios::binary) << whole;
    if (HasFailure()) return;
  }
  EXPECT_NO_THROW(verify_checkpoint(dir));
}

}  // namespace
}  // namespace capstan
