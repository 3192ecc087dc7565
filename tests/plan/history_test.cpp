#include "plan/history.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <map>
#include <thread>

#include "base/files.h"
#include "base/text.h"
#include "plan/calibration.h"
#include "support/temp_folder.h"
#include "support/variable.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

PlannedRun some_run(int64_t steps = 400) {
  return {.date = "2026-08-05T12:34:56Z",
          .device = "NVIDIA H200",
          .calibration = "NVIDIA H200 of 2026-08-01",
          .model = "a \"model\",\nof ours",
          .precision = "bf16-mixed",
          .mesh = "zero3",
          .ranks = 8,
          .steps = steps,
          .predicted_step_seconds = 0.1,
          .measured_step_seconds = 0.103,
          .predicted_run_seconds = 40,
          .measured_run_seconds = 41.5,
          .predicted_bytes = (int64_t{1} << 36) + 1,
          .measured_bytes = (int64_t{1} << 36) + 1};
}

// What a call writes to stderr.
template <class Body>
std::string warnings_of(const Body& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

int64_t lines_in(const std::string& text) {
  return std::count(text.begin(), text.end(), '\n');
}

TEST(History, RunsAreReadAsTheyWereAppended) {
  const TempFolder folder;
  const fs::path path = folder.path() / "new" / "history.jsonl";
  EXPECT_TRUE(read_history(path).empty());
  const PlannedRun first = some_run();
  PlannedRun second = {.device = "a processor, 2 threads", .from_data_sheet = true};
  append_history(path, first);
  append_history(path, second);
  EXPECT_EQ(read_history(path), (std::vector{first, second}));
  EXPECT_EQ(lines_in(read_text(path)), 2);
}

TEST(History, LiesBesideTheCalibrations) {
  const TempFolder folder;
  {
    const Variable cache("CAPSTAN_CACHE", folder.path().c_str());
    EXPECT_EQ(history_path(), folder / "history.jsonl");
  }
  const Variable own("CAPSTAN_CACHE", nullptr);
  {
    const Variable xdg("XDG_CACHE_HOME", folder.path().c_str());
    EXPECT_EQ(history_path().parent_path(), calibration_path("a machine").parent_path());
    EXPECT_EQ(history_path().parent_path(), folder / "capstan" / "calibration");
  }
  const Variable xdg("XDG_CACHE_HOME", nullptr), home("HOME", nullptr);
  EXPECT_TRUE(history_path().empty());
  EXPECT_TRUE(read_history(history_path()).empty());
}

TEST(History, NamesWhenAndByWhat) {
  using Time = std::chrono::system_clock;
  EXPECT_EQ(history_date(Time::from_time_t(1'000'000'000)), "2001-09-09T01:46:40Z");
  Calibration c;
  c.name = "NVIDIA H200";
  c.date = "2026-08-01";
  EXPECT_EQ(label_of(c), "NVIDIA H200 of 2026-08-01");
}

TEST(History, LinesThatAreNotValidAreSkippedWithOneWarning) {
  const TempFolder folder;
  const fs::path path = folder / "history.jsonl";
  append_history(path, some_run());
  const std::string good = read_text(path);
  const auto with = [&](const char* from, const char* to) {
    const std::string line = replaced(good, from, to);
    EXPECT_NE(line, good) << from;
    return line;
  };
  const std::map<std::string, std::string> wrong = {
      {"not JSON\n", "history.jsonl:2:2: not valid JSON"},
      {"[1]\n", "history.jsonl:2: the run: expected an object, found a list"},
      {with("\"version\":1", "\"version\":2"), "history.jsonl:2: version: expected 1, found 2"},
      {with("\"ranks\":8", "\"ranks\":-8"), "ranks: expected an integer from 0 on, found -8"},
      {with("\"ranks\":8", "\"ranks\":4294967296"), "ranks: expected an integer from 0 on"},
      {with("\"steps\":400", "\"steps\":\"400\""), "steps: expected an integer from 0 on, found"},
      {with(":0.103", ":null"), "measured_step_seconds: expected a number from 0 on, found null"},
      {with(":0.103", ":-1"), "measured_step_seconds: expected a number from 0 on, found -1"},
      {with("\"zero3\"", "3"), "mesh: expected a string, found 3"},
      {with(":false", ":0"), "from_data_sheet: expected true or false, found 0"},
      {with("\"mesh\"", "\"mash\""), "mesh: expected this key, found none"},
      {with("\"mesh\"", "\"mash\":1,\"mesh\""), "the run: expected 16 keys, found 17"}};
  for (const auto& [line, message] : wrong) {
    folder.write("history.jsonl", good + line + "\n" + good);
    std::vector<PlannedRun> runs;
    const std::string warning = warnings_of([&] { runs = read_history(path); });
    EXPECT_EQ(runs, (std::vector{some_run(), some_run()})) << line;
    EXPECT_NE(warning.find(message), std::string::npos) << warning;
    EXPECT_EQ(lines_in(warning), 1) << warning;
  }
  folder.write("history.jsonl", "a\n" + good + "b\nc\n");
  const std::string warning = warnings_of([&] { EXPECT_EQ(read_history(path).size(), 1); });
  EXPECT_NE(warning.find("history.jsonl:1:"), std::string::npos) << warning;
  EXPECT_NE(warning.find("this line and 2 more"), std::string::npos) << warning;
  EXPECT_EQ(lines_in(warning), 1) << warning;
}

TEST(History, ALineThatWasCutHarmsOnlyItself) {
  const TempFolder folder;
  const fs::path path = folder / "history.jsonl";
  append_history(path, some_run());
  const std::string good = read_text(path);
  folder.write("history.jsonl", good + good.substr(0, good.size() / 2));
  // Another process may be writing it: no reason to warn.
  EXPECT_EQ(warnings_of([&] { EXPECT_EQ(read_history(path).size(), 1); }), "");
  append_history(path, some_run());
  EXPECT_NE(warnings_of([&] { EXPECT_EQ(read_history(path).size(), 2); }).find(".jsonl:2:"),
            std::string::npos);
}

TEST(History, OfProcessesAndThreadsAtOnceHasEveryRun) {
  constexpr int kProcesses = 4, kThreads = 2, kRuns = 50;
  const TempFolder folder;
  const fs::path path = folder / "history.jsonl";
  const auto append = [&](int writer) {
    for (int i = 0; i < kRuns; ++i) append_history(path, some_run(writer * kRuns + i));
  };
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(::fork());
    ASSERT_GE(children.back(), 0);
    if (children.back() > 0) continue;
    append(p);
    ::_exit(0);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(append, kProcesses + t);
  for (std::thread& t : threads) t.join();
  for (const pid_t child : children) {
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  std::vector<int64_t> found;
  for (const PlannedRun& run : read_history(path)) found.push_back(run.steps);
  std::sort(found.begin(), found.end());
  std::vector<int64_t> all;
  for (int64_t i = 0; i < (kProcesses + kThreads) * kRuns; ++i) all.push_back(i);
  EXPECT_EQ(found, all);
}

TEST(History, KeepsTheNewerHalfOfTooManyLines) {
  const TempFolder folder;
  const fs::path path = folder / "history.jsonl";
  std::string text;
  for (int64_t i = 1; i < kMostLines; ++i) text += fmt::format("old {}\n", i);
  folder.write("history.jsonl", text);
  append_history(path, some_run());
  EXPECT_EQ(lines_in(read_text(path)), kMostLines);
  append_history(path, some_run(7));
  const std::string kept = read_text(path);
  EXPECT_EQ(lines_in(kept), kMostLines / 2);
  // The newest are the two runs; the oldest that is left follows from how many there are.
  EXPECT_TRUE(kept.starts_with(fmt::format("old {}\n", kMostLines / 2 + 2))) << kept.substr(0, 20);
  std::vector<PlannedRun> runs;
  warnings_of([&] { runs = read_history(path); });
  EXPECT_EQ(runs, (std::vector{some_run(), some_run(7)}));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "nothing else is left";
}

// Several find too many lines at once; whoever waited goes on in the new file.
TEST(History, IsCutOnceIfSeveralAppend) {
  const TempFolder folder;
  const fs::path path = folder / "history.jsonl";
  std::string text;
  for (int64_t i = 0; i < kMostLines; ++i) text += "old\n";
  folder.write("history.jsonl", text);
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] { append_history(path, some_run()); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(lines_in(read_text(path)), kMostLines / 2 + kThreads - 1);
  std::vector<PlannedRun> runs;
  warnings_of([&] { runs = read_history(path); });
  EXPECT_EQ(runs.size(), kThreads);
}

TEST(History, ThatCannotBeWrittenIsAWarning) {
  const TempFolder folder;
  folder.write("file", "");
  fs::create_directory(folder / "folder");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  const std::map<const char*, const char*> wrong = {
      {"file/history.jsonl", "file: cannot create the folder: Not a directory"},
      {"folder", "folder: cannot open: Is a directory"},
      {"pipe", "pipe: expected a file"},
      {"/dev/full", "/dev/full: expected a file"}};
  for (const auto& [path, message] : wrong) {
    const std::string warning = warnings_of([&] { append_history(folder / path, some_run()); });
    EXPECT_NE(warning.find("the history of runs was not updated: "), std::string::npos) << warning;
    EXPECT_NE(warning.find(message), std::string::npos) << warning;
    EXPECT_EQ(lines_in(warning), 1) << warning;
  }
  EXPECT_NE(warnings_of([&] { EXPECT_TRUE(read_history(folder / "folder").empty()); }), "");
}

// The disk takes a part of the line.
TEST(History, StaysAsItWasIfALineDoesNotFit) {
  const TempFolder folder;
  const fs::path path = folder / "history.jsonl";
  append_history(path, some_run());
  const std::string before = read_text(path);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{before.size() + 10, before.size() + 10};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string warning = warnings_of([&] { append_history(path, some_run()); });
    ::_exit(warning.find("was not updated") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(read_text(path), before);
}

}  // namespace
}  // namespace capstan
