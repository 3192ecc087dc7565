#include "report/progress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

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

TEST(Progress, ShowsTheValidationLossOnceItIsKnown) {
  const auto lines = lines_of(written([] {
    Progress p(2, 1);
    p.step({.loss = 2, .lr = 1});
    p.step({.loss = 2, .lr = 1, .val_loss = 3.25});
  }));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find("val"), std::string::npos);
  EXPECT_NE(lines[1].find("loss 2.0000 | val 3.2500 | lr"), std::string::npos) << lines[1];
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
