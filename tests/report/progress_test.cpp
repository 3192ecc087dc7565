#include "report/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "report/bar.h"

namespace capstan {
namespace {

// What `body` writes to stderr, which is a file here and no terminal.
template <class Body>
std::string written(const Body& body) {
  testing::internal::CaptureStderr();
  body();
  return testing::internal::GetCapturedStderr();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

TEST(Progress, SaysStepLossRateAndSpeedInOneLine) {
  const auto lines = lines_of(written([] {
    Progress p(2, 1);
    p.step({.loss = 5.56789, .lr = 1e-3, .tokens = 100});
  }));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rfind("step 1/2 | loss 5.5679 | lr 1.00e-03 | ", 0), 0u) << lines[0];
  EXPECT_NE(lines[0].find(" tok/s | ETA "), std::string::npos) << lines[0];
}

TEST(Progress, ShowsTheValidationLossWhereItIsNewWhateverTheInterval) {
  const auto lines = lines_of(written([] {
    Progress p(4, 4);
    p.step({.loss = 2, .lr = 1});
    p.step({.loss = 2, .lr = 1, .val_loss = 3.25});
    p.step({.loss = 2, .lr = 1});
    p.step({.loss = 2, .lr = 1});
  }));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("loss 2.0000 | val 3.2500 | lr"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].rfind("step 2/4 ", 0), 0u) << lines[0];
  EXPECT_EQ(lines[1].find("val"), std::string::npos) << lines[1];
}

TEST(Progress, WritesALineEveryIntervalAndAtTheEnd) {
  const auto lines = lines_of(written([] {
    Progress p(7, 3);
    for (int i = 0; i < 7; ++i) p.step({});
  }));
  ASSERT_EQ(lines.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(lines[i].rfind(fmt::format("step {}/7 ", std::array{3, 6, 7}[i]), 0), 0u) << lines[i];
}

TEST(Progress, HasNoControlCharactersWhereThereIsNoTerminal) {
  const std::string text = written([] {
    Progress p(2, 1);
    p.step({});
    p.say("a remark");
    p.step({});
    p.finish();
  });
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
  EXPECT_EQ(lines_of(text).size(), 3u);
  EXPECT_EQ(lines_of(text)[1], "a remark");
}

TEST(Progress, ExpectsTheRestToTakeAsLongPerStepAsTheStepsDone) {
  double seconds = 0;
  const auto lines = lines_of(written([&] {
    Progress p(4, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    p.step({});
    seconds = p.seconds();
    for (int i = 0; i < 3; ++i) p.step({});
  }));
  ASSERT_EQ(lines.size(), 4u);
  // Three more steps of 30 ms or, on a busy machine, a little more.
  const double eta = std::stod(lines[0].substr(lines[0].find("ETA ") + 4));
  EXPECT_NE(lines[0].find(seconds * 3 < 0.99 ? " ms" : " s"), std::string::npos) << lines[0];
  const double unit = lines[0].ends_with(" ms") ? 1e-3 : 1;
  EXPECT_GE(eta * unit, 0.089);
  EXPECT_LE(eta * unit, 3 * seconds + 0.06);
  EXPECT_TRUE(lines[3].ends_with("ETA 0 ms")) << lines[3];
}

TEST(Progress, WhatIsExcludedIsNoTimeOfTraining) {
  written([] {
    Progress p(3, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const double before = p.seconds();
    p.exclude(0.02);
    EXPECT_GE(p.seconds(), before - 0.021);
    p.exclude(1e6);
    EXPECT_LT(p.seconds(), before);
    EXPECT_GT(p.seconds(), 0) << "it is divided by";
  });
}

// Columns of a line: continuation bytes of UTF-8 take none.
int64_t columns_of(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

const ProgressState kSome{.done = 12,
                          .total = 400,
                          .elapsed = 5,
                          .seconds_per_step = 1 / 2.4,
                          .notes = "loss=2.134, lr=1.2e-04, tok/s=3.1k"};

TEST(ProgressBar, ReadsLikeTqdm) {
  EXPECT_EQ(progress_bar(kSome, 84),
            "  3%|▎         | 12/400 [00:05<02:42, 2.40it/s, loss=2.134, lr=1.2e-04, tok/s=3.1k]");
  EXPECT_EQ(progress_bar({.done = 2, .total = 4, .elapsed = 7300, .seconds_per_step = 3650}, 80),
            " 50%|████████████            | 2/4 [2:01:40<2:01:40, 3650.00s/it]");
  EXPECT_EQ(progress_bar({.done = 0, .total = 8}, 80),
            "  0%|                        | 0/8 [00:00<?, ?it/s]");
}

TEST(ProgressBar, SaysAHundredPercentWhenAllIsDone) {
  EXPECT_EQ(progress_bar({.done = 999, .total = 1000}, 200).rfind(" 99%|", 0), 0u);
  EXPECT_EQ(progress_bar({.done = 1000, .total = 1000}, 200).rfind("100%|", 0), 0u);
  EXPECT_EQ(
      progress_bar({.done = 12, .elapsed = 5, .seconds_per_step = 1 / 2.4, .notes = "loss=2"}, 80),
      "12it [00:05, 2.40it/s, loss=2]");
  EXPECT_EQ(progress_bar({.done = 12, .elapsed = 5}, 9), "12it [00");
}

TEST(ProgressBar, GivesWayToTheTextAndThenCutsIt) {
  const std::string text = "12/400 [00:05<02:42, 2.40it/s, loss=2.134, lr=1.2e-04, tok/s=3.1k]";
  EXPECT_EQ(columns_of(progress_bar(kSome, 200)), 5 + 24 + 2 + static_cast<int64_t>(text.size()));
  const int all = 6 + 2 + static_cast<int>(text.size());  // with the free column
  EXPECT_EQ(progress_bar(kSome, all + 4), "  3%|▏   | " + text);
  EXPECT_EQ(progress_bar(kSome, all + 3), "  3%| " + text) << "a bar of 3 tells nothing";
  EXPECT_EQ(progress_bar(kSome, 20), "  3%| 12/400 [00:05");
  for (int columns = 6; columns < 130; ++columns)
    EXPECT_LT(columns_of(progress_bar(kSome, columns)), columns) << columns;
  EXPECT_EQ(progress_bar(kSome, 1), "  3%|");
}

TEST(BlockBar, CountsInEighthsAndFillsItsWidth) {
  EXPECT_EQ(block_bar(0, 3), "   ");
  EXPECT_EQ(block_bar(1, 3), "███");
  EXPECT_EQ(block_bar(0.5, 3), "█▌ ");
  EXPECT_EQ(block_bar(1.0 / 24, 3), "▏  ");
  EXPECT_EQ(block_bar(23.0 / 24, 3), "██▉");
  EXPECT_EQ(block_bar(7, 2), "██");
  EXPECT_EQ(block_bar(-1, 2), "  ");
  EXPECT_EQ(block_bar(std::nan(""), 2), "  ");
  EXPECT_EQ(block_bar(0.5, 0), "");
}

TEST(LitGptLines, AreAsLitGptPrintsThem) {
  EXPECT_EQ(
      iteration_line(
          {.epoch = 1, .iter = 4, .step = 1, .loss = 2.5161, .seconds = 0.012344, .stepped = true}),
      "Epoch 1 | iter 4 step 1 | loss train: 2.516, val: n/a | iter time: 12.34 ms (step)");
  EXPECT_EQ(iteration_line({.epoch = 2, .iter = 5, .step = 1, .loss = 2, .val_loss = 1.5}),
            "Epoch 2 | iter 5 step 1 | loss train: 2.000, val: 1.500 | iter time: 0.00 ms");
  EXPECT_EQ(validation_line(40, 1.23456, 0.0678912),
            "iter 40: val loss 1.2346, val time: 67.89 ms");
  EXPECT_EQ(final_evaluation_line(1.0), "Final evaluation | val loss: 1.000 | val ppl: 2.718");
}

TEST(Progress, OfAResumedRunCountsFromItsStepAndMeasuresItsOwnSpeed) {
  const auto lines = lines_of(written([] {
    Progress p(1002, 1, 1000);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    p.step({.tokens = 10});
    EXPECT_EQ(p.tokens(), 10);
  }));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].rfind("step 1001/1002 ", 0), 0u) << lines[0];
  const double eta = std::stod(lines[0].substr(lines[0].find("ETA ") + 4));
  EXPECT_GE(eta, lines[0].ends_with(" ms") ? 29 : 0.02) << "one more step as long as this one";
}

TEST(Progress, OfIntervalZeroSaysOnlyWhatItIsTold) {
  EXPECT_EQ(written([] {
              Progress p(2, 0);
              p.step({.val_loss = 3});
              p.say("Epoch 1");
              p.step({});
              p.finish();
            }),
            "Epoch 1\n");
}

// A terminal of so many columns that stands for stderr while it lives.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    EXPECT_EQ(openpty(&here_, &there_, nullptr, nullptr, &size), 0);
    saved_ = dup(STDERR_FILENO);
    dup2(there_, STDERR_FILENO);
  }
  ~Terminal() {
    dup2(saved_, STDERR_FILENO);
    for (const int fd : {saved_, there_, here_}) close(fd);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // What was written since the last call. The kernel hands it over in its own time: what stays
  // quiet for a while is all.
  std::string text() const {
    std::string s;
    pollfd ready{here_, POLLIN, 0};
    while (poll(&ready, 1, s.empty() ? 2000 : 50) > 0) {
      std::array<char, 4096> piece{};
      const ssize_t n = read(here_, piece.data(), piece.size());
      if (n <= 0) break;
      s.append(piece.data(), static_cast<size_t>(n));
    }
    return s;
  }

 private:
  int here_ = -1, there_ = -1, saved_ = -1;
};

constexpr const char* kRedraw = "\r\x1b[2K";

size_t draws_in(const std::string& text) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(kRedraw, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST(Progress, OnATerminalIsRedrawnInItsWidthAndAValidationLeavesALine) {
  const Terminal terminal(60);
  Progress p(3, 1);
  EXPECT_NE(terminal.text().find("0/3 [00:00<?"), std::string::npos) << "before the first step";
  for (const double val : {3.25, 3.125, -1.0}) {
    p.step({.loss = 2, .lr = 1, .val_loss = val, .tokens = 5});
    const std::string s = terminal.text();
    EXPECT_EQ(std::count(s.begin(), s.end(), '\n'), val < 0 ? 0 : 1) << s;
    EXPECT_EQ(s.find("| val 3.") != std::string::npos, val >= 0) << s;
    const size_t bar = s.rfind(kRedraw);
    ASSERT_NE(bar, std::string::npos) << s;
    EXPECT_LT(columns_of(s.substr(bar + 5)), 60) << s;
    EXPECT_NE(s.find("loss=2.000", bar), std::string::npos) << s;
    EXPECT_EQ(s.find("val", bar), std::string::npos) << s;
  }
  p.finish();
  EXPECT_EQ(terminal.text(), "\r\n");
}

TEST(Progress, OnATerminalDrawsNoMoreThanTenTimesASecond) {
  const Terminal terminal(80);
  const auto start = std::chrono::steady_clock::now();
  Progress p(1000, 1);
  for (int i = 0; i < 500; ++i) p.step({.loss = 1});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::string text = terminal.text();
  EXPECT_LE(draws_in(text), 2 + static_cast<size_t>(took.count() * 10));
  p.finish();
  EXPECT_NE(terminal.text().find("500/1000"), std::string::npos) << "the end is shown";
}

TEST(Progress, OnATerminalSaysLinesAboveTheBar) {
  const Terminal terminal(80);
  Progress p(3, 0);
  p.step({});
  (void)terminal.text();
  p.say("Epoch 1 | iter 4");
  const std::string s = terminal.text();
  EXPECT_EQ(s.rfind(std::string(kRedraw) + "Epoch 1 | iter 4\r\n" + kRedraw, 0), 0u) << s;
  EXPECT_NE(s.find("1/3 ["), std::string::npos) << "the bar below is of now: " << s;
}

TEST(Progress, CountsTokens) {
  written([] {
    Progress p(3, 1);
    for (const int64_t n : {5, 7, 11}) p.step({.tokens = n});
    EXPECT_EQ(p.tokens(), 23);
    EXPECT_GE(p.seconds(), 0);
  });
}

}  // namespace
}  // namespace capstan
