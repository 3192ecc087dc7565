#include "report/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "report/event_file.h"
#include "support/message_of.h"
#include "support/temp_folder.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHeader =
    "epoch,iter,iter_time,learning_rate,loss,step,tokens,total_tokens,val_loss,val_ppl\n";

// Two iterations make a step; every second step has a validation.
MetricsRow row_of(int64_t iter) {
  MetricsRow r{.epoch = 1, .iter = iter, .step = iter / 2};
  r.iter_time = 0.1 * static_cast<double>(iter);
  r.learning_rate = 1e-5 * static_cast<double>(iter);
  r.loss = 3 - 0.01 * static_cast<double>(iter);
  r.tokens = 100 + iter;
  r.total_tokens = 100 * iter;
  if (iter % 4 == 0) r.val_loss = 2.5;
  r.grad_norm = 0.5;
  return r;
}

void write_rows(MetricsLog& log, int64_t first, int64_t last) {
  for (int64_t i = first; i <= last; ++i) log.write(row_of(i));
}

std::vector<int64_t> iters_of(const std::vector<MetricsRow>& rows) {
  std::vector<int64_t> iters;
  for (const MetricsRow& row : rows) iters.push_back(row.iter);
  return iters;
}

using Iters = std::vector<int64_t>;

TEST(MetricsCsv, HasLitGptsColumnsAndEmptyCellsWhereNothingWasMeasured) {
  const TempFolder out;
  MetricsLog log(Logger::csv, out.path());
  log.write({.epoch = 1,
             .iter = 4,
             .step = 1,
             .iter_time = 0.25,
             .learning_rate = 2e-5,
             .loss = 2.5,
             .tokens = 64,
             .total_tokens = 256});
  log.write({.iter = 4, .step = 1, .val_loss = 0});
  EXPECT_EQ(log.csv_path(), out.path() / "logs/csv/version_0/metrics.csv");
  EXPECT_EQ(log.path(), log.csv_path());
  EXPECT_EQ(read_text(log.csv_path()),
            std::string(kHeader) + "1,4,0.25,2e-05,2.5,1,64,256,,\n0,4,,,,1,0,0,0,1\n");
}

TEST(MetricsCsv, ReadsBackBitByBit) {
  const TempFolder out;
  MetricsLog log(Logger::csv, out.path());
  MetricsRow r = row_of(7);
  r.loss = 1.0 / 3;
  r.learning_rate = 5e-324;
  r.iter_time = std::numeric_limits<double>::max();
  r.val_loss = -std::numeric_limits<double>::infinity();
  log.write(r);
  r.loss = std::numeric_limits<double>::quiet_NaN();
  log.write(r);
  const auto rows = log.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].loss, 1.0 / 3);
  EXPECT_EQ(rows[0].learning_rate, 5e-324);
  EXPECT_EQ(rows[0].iter_time, std::numeric_limits<double>::max());
  EXPECT_EQ(rows[0].val_loss, r.val_loss);
  EXPECT_EQ(rows[0].val_ppl(), 0);
  EXPECT_EQ(rows[0].tokens, 107);
  EXPECT_EQ(rows[0].total_tokens, 700);
  EXPECT_EQ(rows[0].step, 3);
  EXPECT_TRUE(std::isnan(*rows[1].loss));
}

TEST(MetricsCsv, OfOthersIsRefused) {
  const TempFolder out;
  for (const char* text : {"", "step,loss\n1,2\n"}) {
    const fs::path path = out.write("m.csv", text);
    EXPECT_TRUE(message_of(Fault::file, [&] {
                  read_metrics(path);
                }).starts_with(path.string() + ":1:1: expected the line \"epoch,iter"));
  }
}

TEST(MetricsCsv, LinesThatAreNoRowsAreLeftOutAndToldWithTheirPlace) {
  const TempFolder out;
  const std::string good = "1,2,3,4,5,6,7,8,,\n";
  const auto said = [&](const std::string& text) {
    const fs::path path = out.write("m.csv", kHeader + good + text);
    std::vector<BadLine> bad;
    EXPECT_EQ(read_metrics(path, &bad).size(), 1u) << text;
    EXPECT_EQ(read_metrics(path).size(), 1u) << text;
    EXPECT_EQ(bad.size(), 1u) << text;
    if (bad.empty()) return std::string();
    EXPECT_EQ(bad[0].text, text.substr(0, text.find('\n')));
    EXPECT_EQ(bad[0].why.rfind(path.string() + ":", 0), 0u) << bad[0].why;
    return bad[0].why.substr(path.string().size() + 1);
  };
  EXPECT_EQ(said("1,x,3,4,5,6,7,8,,\n"), "3:3: expected a whole number, found \"x\"");
  EXPECT_EQ(said("1,2,a,4,5,6,7,8,,\n"), "3:5: expected a number or nothing, found \"a\"");
  EXPECT_EQ(said("1,2,3,4\n").rfind("3:7: expected a row of the columns", 0), 0u);
  EXPECT_EQ(said("1,2,3,4,5,6,7,8,,,\n").rfind("3:18: expected a row", 0), 0u);
  EXPECT_EQ(said("\n").rfind("3:1: expected a row", 0), 0u);
  EXPECT_EQ(said("99999999999999999999,2,3,4,5,6,7,8,,\n").rfind("3:1: ", 0), 0u);
  EXPECT_EQ(said("1,2,3,4,5,6,7,8,,"), "3:1: the line is cut short");
  EXPECT_EQ(said(std::string(100, '\0')), "3:1: the line is cut short") << "as a power cut leaves";
}

// Minutes if each cell or line looked for its place in the file; well under a second as it is.
TEST(MetricsLog, OfManyRowsIsReadAndResumedInNoTime) {
  const TempFolder out;
  std::string csv = kHeader, jsonl;
  for (int64_t i = 0; i < 100000; ++i) {
    csv += csv_line(row_of(i));
    jsonl += jsonl_line(row_of(i));
  }
  fs::create_directories(out.path() / "logs/csv/version_0");
  fs::create_directories(out.path() / "logs/jsonl/version_0");
  out.write("logs/csv/version_0/metrics.csv", csv);
  out.write("logs/jsonl/version_0/metrics.jsonl", jsonl);
  EXPECT_EQ(MetricsLog::resume(Logger::jsonl, out.path(), 24999).rows().size(), 50000u);
}

TEST(MetricsLog, IsThereToReadAfterEveryRow) {
  const TempFolder out;
  MetricsLog log(Logger::jsonl, out.path());
  for (int64_t i = 1; i <= 3; ++i) {
    log.write(row_of(i));
    EXPECT_EQ(log.rows().size(), static_cast<size_t>(i));
    const std::string text = read_text(log.path());
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), i);
  }
}

TEST(MetricsLog, AKilledRunKeepsItsRows) {
  const TempFolder out;
  const pid_t child = fork();
  if (child == 0) {
    MetricsLog log(Logger::csv, out.path());
    write_rows(log, 1, 5);
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(iters_of(read_metrics(out.path() / "logs/csv/version_0/metrics.csv")),
            (Iters{1, 2, 3, 4, 5}));
}

TEST(MetricsLog, EachRunGetsAVersionThatNoLoggerHas) {
  const TempFolder out;
  EXPECT_EQ(MetricsLog(Logger::csv, out.path()).csv_path().parent_path().filename(), "version_0");
  fs::create_directories(out.path() / "logs/tensorboard/version_7");
  fs::create_directories(out.path() / "logs/csv/version_x9");
  fs::create_directories(out.path() / "logs/csv/version_99999999999999999999");
  const MetricsLog log(Logger::jsonl, out.path());
  EXPECT_EQ(log.path(), out.path() / "logs/jsonl/version_8/metrics.jsonl");
  EXPECT_EQ(log.csv_path(), out.path() / "logs/csv/version_8/metrics.csv");
}

TEST(MetricsLog, JsonlHasAnObjectPerLineWithTheGradientsNorm) {
  const TempFolder out;
  MetricsLog log(Logger::jsonl, out.path());
  log.write(row_of(4));
  MetricsRow bare;
  bare.loss = std::numeric_limits<double>::quiet_NaN();
  bare.grad_norm = -std::numeric_limits<double>::infinity();
  log.write(bare);
  const std::string text = read_text(log.path());
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  EXPECT_EQ(first["epoch"], 1);
  EXPECT_EQ(first["step"], 2);
  EXPECT_EQ(first["loss"], *row_of(4).loss);
  EXPECT_EQ(first["grad_norm"], 0.5);
  EXPECT_EQ(first["val_ppl"], std::exp(2.5));
  EXPECT_EQ(text.substr(text.find('\n') + 1),
            "{\"epoch\":0,\"iter\":0,\"step\":0,\"loss\":\"NaN\",\"tokens\":0,\"total_tokens\":0,"
            "\"grad_norm\":\"-Infinity\"}\n")
      << "null would read as a value that nobody measured";
}

TEST(MetricsLog, ResumeDropsWhatWillBeMadeAgainAndTheTornLine) {
  for (const Logger logger : {Logger::csv, Logger::jsonl}) {
    const TempFolder out;
    {
      MetricsLog log(logger, out.path());
      write_rows(log, 1, 12);
      for (const fs::path& path : {log.csv_path(), log.path()})
        std::ofstream(path, std::ios::app) << (path.extension() == ".csv" ? "1,13,0." : "{\"epo");
    }
    MetricsLog log = MetricsLog::resume(logger, out.path(), 3);  // iterations 6 and 7 are of it
    EXPECT_EQ(log.csv_path(), out.path() / "logs/csv/version_0/metrics.csv");
    EXPECT_EQ(iters_of(log.rows()), (Iters{1, 2, 3, 4, 5, 6, 7}));
    write_rows(log, 8, 8);
    EXPECT_EQ(iters_of(log.rows()), (Iters{1, 2, 3, 4, 5, 6, 7, 8}));
    if (logger == Logger::csv) continue;
    std::string expected;
    for (int64_t i = 1; i <= 8; ++i) expected += jsonl_line(row_of(i));
    EXPECT_EQ(read_text(log.path()), expected);
  }
}

TEST(MetricsLog, ResumeLeavesTheFileAsIfTheRunHadNotStopped) {
  const TempFolder whole, broken;
  MetricsLog all(Logger::csv, whole.path());
  write_rows(all, 1, 10);
  {
    MetricsLog log(Logger::csv, broken.path());
    write_rows(log, 1, 7);
  }
  MetricsLog rest = MetricsLog::resume(Logger::csv, broken.path(), 2);
  write_rows(rest, 6, 10);
  EXPECT_EQ(read_text(rest.csv_path()), read_text(all.csv_path()));
}

TEST(MetricsLog, ResumeByStepAloneKeepsAllIterationsOfTheStep) {
  const TempFolder out;
  {
    MetricsLog log(Logger::csv, out.path());
    write_rows(log, 1, 12);
  }
  EXPECT_EQ(iters_of(MetricsLog::resume(Logger::csv, out.path(), 2).rows()),
            (Iters{1, 2, 3, 4, 5}));
}

TEST(MetricsLog, ResumeWithoutALogOfOursBeginsOne) {
  const TempFolder out;
  EXPECT_EQ(MetricsLog::resume(Logger::csv, out.path(), 5).csv_path(),
            out.path() / "logs/csv/version_0/metrics.csv");
  fs::create_directories(out.path() / "logs/csv/version_1");
  const fs::path others = out.write("logs/csv/version_1/metrics.csv", "step,loss\n1,2\n");
  const MetricsLog log = MetricsLog::resume(Logger::jsonl, out.path(), 5);
  EXPECT_EQ(log.csv_path(), out.path() / "logs/csv/version_2/metrics.csv");
  EXPECT_EQ(read_text(others), "step,loss\n1,2\n") << "not ours to touch";
}

TEST(MetricsLog, ResumeMayAskForAnotherLogger) {
  const TempFolder out;
  {
    MetricsLog log(Logger::csv, out.path());
    write_rows(log, 1, 4);
  }
  MetricsLog log = MetricsLog::resume(Logger::jsonl, out.path(), 2);
  write_rows(log, 5, 5);
  EXPECT_EQ(iters_of(log.rows()), (Iters{1, 2, 3, 4, 5}));
  EXPECT_EQ(read_text(log.path()), jsonl_line(row_of(5)));
}

TEST(MetricsLog, ResumePutsBadLinesAsideAndSaysWhere) {
  const TempFolder out;
  fs::path jsonl, csv;
  {
    MetricsLog log(Logger::jsonl, out.path());
    write_rows(log, 1, 2);
    jsonl = log.path();
    csv = log.csv_path();
    std::ofstream(jsonl, std::ios::app) << "{\"step\": \"x\", \"iter\": 1}\n";
    std::ofstream(csv, std::ios::app) << "not a row\n";
    write_rows(log, 3, 4);
    std::ofstream(jsonl, std::ios::app) << "{\"epo";
    std::ofstream(csv, std::ios::app) << "1,13,0.";
  }
  testing::internal::CaptureStderr();
  MetricsLog log = MetricsLog::resume(Logger::jsonl, out.path(), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(iters_of(log.rows()), (Iters{1, 2, 3, 4}));
  std::string expected;
  for (int64_t i = 1; i <= 4; ++i) expected += jsonl_line(row_of(i));
  EXPECT_EQ(read_text(jsonl), expected);
  EXPECT_EQ(read_text(csv.string() + ".bad"), "not a row\n1,13,0.\n");
  EXPECT_EQ(read_text(jsonl.string() + ".bad"), "{\"step\": \"x\", \"iter\": 1}\n{\"epo\n");
  for (const std::string& part :
       {csv.string() + ":4:1: expected a row", csv.string() + ":7:1: the line is cut short",
        jsonl.string() + ":3:1: expected an object", jsonl.string() + ":6:1: the line is cut short",
        "moved the line to " + csv.string() + ".bad"})
    EXPECT_NE(said.find(part), std::string::npos) << part << "\n" << said;
  log = MetricsLog::resume(Logger::jsonl, out.path(), 2);
  EXPECT_EQ(read_text(csv.string() + ".bad"), "not a row\n1,13,0.\n") << "once";
}

TEST(MetricsLog, SyncIsThereForAnotherThreadAndAfterTheLog) {
  const TempFolder out;
  std::function<void()> sync;
  for (const Logger logger : {Logger::csv, Logger::jsonl, Logger::tensorboard}) {
    MetricsLog log(logger, out.path());
    log.write(row_of(1));
    EXPECT_NO_THROW(log.sync());
    sync = log.sync_later();
  }
  EXPECT_NO_THROW(sync());
}

TEST(MetricsLog, TensorBoardGetsTheSameNumbers) {
  const TempFolder out;
  MetricsLog log(Logger::tensorboard, out.path());
  write_rows(log, 1, 4);
  EXPECT_EQ(log.path().parent_path(), out.path() / "logs/tensorboard/version_0");
  EXPECT_EQ(log.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
  EXPECT_TRUE(log.path().string().ends_with(fmt::format(".{}", getpid()))) << log.path();
  const auto events = read_event_file(read_text(log.path()));
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_GT(events[0].wall_time, 1.6e9);
  const auto rows = log.rows();
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto& scalars = events[i + 1].scalars;
    EXPECT_EQ(events[i + 1].step, rows[i].step);
    EXPECT_EQ(scalars.at("loss"), static_cast<float>(*rows[i].loss));
    EXPECT_EQ(scalars.at("learning_rate"), static_cast<float>(*rows[i].learning_rate));
    EXPECT_EQ(scalars.at("tokens"), static_cast<float>(rows[i].tokens));
    EXPECT_EQ(scalars.at("grad_norm"), 0.5f);
    EXPECT_EQ(scalars.count("val_loss"), rows[i].val_loss ? 1u : 0u);
  }
}

TEST(MetricsLog, ResumeGivesTensorBoardALaterFileThatDropsWhatCameAfter) {
  const TempFolder out;
  fs::path first;
  {
    MetricsLog log(Logger::tensorboard, out.path());
    write_rows(log, 1, 8);
    first = log.path();
  }
  MetricsLog log = MetricsLog::resume(Logger::tensorboard, out.path(), 3);
  write_rows(log, 8, 9);
  EXPECT_GT(log.path(), first) << "TensorBoard reads them by name";
  EXPECT_EQ(log.path().parent_path(), first.parent_path());
  const auto events = read_event_file(read_text(log.path()));
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].file_version, "brain.Event:2");
  EXPECT_EQ(events[1].session_status, 1u);
  EXPECT_EQ(events[1].step, 4);
  EXPECT_EQ(events[2].step, 4);
}

// As tensorboard itself reads them: points, values, and what a resume dropped.
TEST(MetricsLog, TensorBoardItselfAgreesWithTheCsv) {
  const char* python = std::getenv("CAPSTAN_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "CAPSTAN_PYTHON names no Python that has tensorboard";
  const TempFolder out;
  {
    MetricsLog log(Logger::tensorboard, out.path());
    write_rows(log, 1, 20);
  }
  MetricsLog log = MetricsLog::resume(Logger::tensorboard, out.path(), 6);
  for (int64_t i = 14; i <= 24; ++i) {
    MetricsRow row = row_of(i);
    row.loss = *row.loss + 1;  // so that points of the first run would be seen
    log.write(row);
  }
  const std::string command = fmt::format(
      "'{}' '{}/tools/check_tensorboard.py' '{}' '{}' > '{}' 2>&1", python, CAPSTAN_SOURCE_DIR,
      log.path().parent_path().string(), log.csv_path().string(), (out / "said").string());
  EXPECT_EQ(std::system(command.c_str()), 0) << read_text(out / "said");
}

TEST(MetricsLog, AFullDiskLeavesWholeRows) {
  const TempFolder out;
  const pid_t child = fork();
  if (child == 0) {  // the limit would hold for other tests, too
    std::signal(SIGXFSZ, SIG_IGN);
    MetricsLog log(Logger::csv, out.path());
    const rlimit limit{.rlim_cur = 400, .rlim_max = 400};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      write_rows(log, 1, 100);
    } catch (const Error& e) {
      const bool named = std::string(e.what()).find("metrics.csv: cannot write: ") < 1000;
      _exit(e.fault() == Fault::file && named ? 0 : 2);
    }
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::string text = read_text(out.path() / "logs/csv/version_0/metrics.csv");
  EXPECT_LE(text.size(), 400u);
  EXPECT_TRUE(text.ends_with("\n"));
}

TEST(MetricsLog, AFolderThatCannotBeMadeIsNamed) {
  const TempFolder out;
  out.write("logs", "a file");
  const std::string message = message_of(Fault::file, [&] { MetricsLog(Logger::csv, out.path()); });
  EXPECT_NE(message.find((out / "logs").string()), std::string::npos) << message;
}

}  // namespace
}  // namespace capstan
