#include "report/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

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

TEST(ProgressBar, GivesWayToTheTextAndThenCutsIt) {
  const std::string text(60, 'x');
  EXPECT_EQ(columns_of(progress_bar(0.5, text, 200)), 5 + 24 + 1 + 60);
  EXPECT_EQ(progress_bar(0.5, text, 71), " 50% ██░░ " + text);
  EXPECT_EQ(progress_bar(0.5, text, 70), " 50% " + text) << "a bar of 3 tells nothing";
  EXPECT_EQ(progress_bar(1, text, 20), "100% " + std::string(14, 'x'));
  for (const int columns : {6, 7, 64, 65, 66, 67, 80, 95, 96})
    for (const double fraction : {0.0, 0.333, 1.0})
      EXPECT_LT(columns_of(progress_bar(fraction, text, columns)), columns) << columns;
  EXPECT_EQ(progress_bar(0, text, 1), "  0% ");
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

  std::string text() const {
    std::string s(4096, '\0');
    s.resize(static_cast<size_t>(std::max<ssize_t>(0, read(here_, s.data(), s.size()))));
    return s;
  }

 private:
  int here_ = -1, there_ = -1, saved_ = -1;
};

TEST(Progress, OnATerminalIsRedrawnInItsWidthAndAValidationLeavesALine) {
  const Terminal terminal(60);
  Progress p(3, 1);
  const auto drawn = [&](const Progress::Line& line) {
    p.step(line);
    return terminal.text();
  };
  const std::string redraw = "\r\x1b[2K";
  for (const double val : {-1.0, 3.25, -1.0}) {
    std::string s = drawn({.loss = 2, .lr = 1, .val_loss = val, .tokens = 5});
    EXPECT_EQ(std::count(s.begin(), s.end(), '\n'), val < 0 ? 0 : 1) << s;
    EXPECT_EQ(s.find("val 3.2500") != std::string::npos, val >= 0) << s;
    const size_t bar = s.rfind(redraw);
    ASSERT_NE(bar, std::string::npos) << s;
    EXPECT_EQ(columns_of(s.substr(bar + redraw.size())), 59) << s;
    EXPECT_EQ(s.find("val", bar), std::string::npos) << s;
  }
  p.finish();
  EXPECT_EQ(terminal.text(), "\r\n");
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
