#include "report/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "report/bar.h"
#include "support/terminal.h"

namespace capstan {
namespace {

TEST(Progress, WhatIsExcludedIsNoTimeOfTraining) {
  testing::internal::CaptureStderr();
  Progress p(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const double before = p.seconds();
  p.exclude(0.02);
  EXPECT_GE(p.seconds(), before - 0.021);
  p.exclude(1e6);
  EXPECT_LT(p.seconds(), before);
  EXPECT_GT(p.seconds(), 0) << "it is divided by";
  testing::internal::GetCapturedStderr();
}

TEST(Progress, ShowsNothingWhereThereIsNoTerminal) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    Progress p(2);
    EXPECT_FALSE(p.replaces_lines());
    p.step({});
    p.step({});
    p.finish();
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
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
  EXPECT_EQ(progress_bar({.done = 2100, .total = 1000}, 200).rfind("100%|", 0), 0u);
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

// Draws on a terminal while it lives.
class OnTerminal : public testing::Test {
 protected:
  Terminal terminal{60};
  Redirected err{STDERR_FILENO, terminal.there()};
};

size_t draws_in(const std::string& text) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(kErasedLine, at)) != std::string::npos; ++at) ++n;
  return n;
}

TEST_F(OnTerminal, TheBarIsRedrawnInItsWidth) {
  Progress p(2);
  EXPECT_NE(terminal.text().find("0/2 [00:00<?"), std::string::npos) << "before the first step";
  std::this_thread::sleep_for(std::chrono::milliseconds(110));
  for (int i = 0; i < 2; ++i) {
    p.step({.loss = 2, .lr = 1, .tokens = 5});
    const std::string s = terminal.text();
    const size_t bar = s.rfind(kErasedLine);
    ASSERT_NE(bar, std::string::npos) << s;
    EXPECT_LT(columns_of(s.substr(bar + 5)), 60) << s;
    EXPECT_NE(s.find("loss=2.000", bar), std::string::npos) << s;
    EXPECT_EQ(s.find('\n'), std::string::npos) << s;
    std::this_thread::sleep_for(std::chrono::milliseconds(110));
  }
  p.finish();
  EXPECT_EQ(terminal.text(), "\r\n");
  p.finish();
  EXPECT_EQ(terminal.text(100), "");
}

TEST_F(OnTerminal, TheBarIsDrawnNoMoreThanTenTimesASecond) {
  const auto start = std::chrono::steady_clock::now();
  Progress p(1000);
  for (int i = 0; i < 500; ++i) p.step({.loss = 1});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LE(draws_in(terminal.text()), 2 + static_cast<size_t>(took.count() * 10));
  p.finish();
  EXPECT_NE(terminal.text().find("500/1000"), std::string::npos) << "the end is shown";
}

TEST_F(OnTerminal, OfAResumedRunTheBarCountsFromItsStepAndMeasuresItsOwnSpeed) {
  Progress p(1002, 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(120));
  p.step({.tokens = 10});
  const std::string s = terminal.text();
  EXPECT_NE(s.find("1001/1002 ["), std::string::npos) << s;
  // A step of 120 ms: eight a second at most, where counting the first thousand would make 8000.
  const size_t rate = s.rfind(", ", s.rfind("it/s"));
  EXPECT_LT(std::stod(s.substr(rate + 2)), 9) << s;
}

// A line for each step says no more than the bar, where both are on one terminal.
TEST_F(OnTerminal, TheBarReplacesLinesOnlyOnTheSameTerminal) {
  Progress p(2);
  testing::internal::CaptureStdout();
  EXPECT_FALSE(p.replaces_lines()) << "stdout is a file";
  testing::internal::GetCapturedStdout();
  const Redirected out(STDOUT_FILENO, terminal.there());
  EXPECT_TRUE(p.replaces_lines());
}

}  // namespace
}  // namespace capstan
