#include "report/work_bar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "support/terminal.h"

namespace capstan {
namespace {

using std::chrono::milliseconds;

const WorkState kSome{
    .what = "tokenizing", .unit = "bytes", .done = 21'500'000, .total = 50'000'000, .elapsed = 11};

TEST(WorkBar, ShowsTheFractionTheRateAndTheTimeLeft) {
  EXPECT_EQ(work_bar(kSome, 100),
            "tokenizing:  43%|██████████▍             | 21.5M/50.0M bytes [00:11<00:15, 2.0M/s]");
  EXPECT_EQ(work_line(kSome), "tokenizing: 43%, 21.5M of 50.0M bytes, 2.0M/s, 14.6 s left");
  EXPECT_EQ(work_bar({.what = "validating", .done = 0, .total = 8, .elapsed = 2}, 60),
            "validating:   0%|                      | 0/8 [00:02<?, ?/s]");
}

TEST(WorkBar, ShowsTheTimeWhereTheTotalIsNotKnown) {
  const WorkState s{.what = "verifying settings", .elapsed = 72.4};
  EXPECT_EQ(work_bar(s, 80), "verifying settings: [01:12]");
  EXPECT_EQ(work_line(s), "verifying settings: 1:12 so far");
}

TEST(WorkBar, StaysWithinTheColumns) {
  for (int columns = 1; columns < 100; ++columns) {
    const std::string bar = work_bar(kSome, columns);
    const auto wide =
        std::count_if(bar.begin(), bar.end(), [](char c) { return (c & 0xc0) != 0x80; });
    EXPECT_LT(wide, columns) << bar;
  }
}

TEST(WorkBar, SaysNothingOfWorkThatIsSoonOver) {
  testing::internal::CaptureStderr();
  { WorkBar bar("quick"); }
  {
    WorkBar bar("of another rank", false,
                {.quiet = milliseconds(0), .redraw = milliseconds(1), .line = milliseconds(1)});
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(WorkBar, IsALineNowAndThenWhereThereIsNoTerminal) {
  testing::internal::CaptureStderr();
  {
    WorkBar bar("tokenizing", true,
                {.quiet = milliseconds(1), .redraw = milliseconds(1), .line = milliseconds(20)});
    bar.tell(1, 4, "records");
    std::this_thread::sleep_for(milliseconds(200));
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.rfind("tokenizing: 25%, 1 of 4 records, ", 0), 0u) << said;
}

TEST(WorkBar, IsRedrawnOnATerminalAndDisappears) {
  const Terminal terminal(80);
  std::string shown;
  {
    const Redirected err(STDERR_FILENO, terminal.there());
    {
      WorkBar bar(
          "loading", true,
          // Redrawn more rarely than text() waits for more.
          {.quiet = milliseconds(1), .redraw = milliseconds(500), .line = milliseconds(10'000)});
      shown = terminal.text();
    }
    shown += terminal.text(200);
  }
  EXPECT_NE(shown.find("\r\x1b[2Kloading: [00:00]"), std::string::npos) << shown;
  EXPECT_TRUE(shown.ends_with("\r\x1b[2K")) << shown;
  EXPECT_EQ(shown.find('\n'), std::string::npos) << shown;
}

}  // namespace
}  // namespace capstan
