#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/terminal.h"
#include "support/terminal.h"

namespace capstan {
namespace {

using Lines = std::vector<std::string>;

TEST(Log, LinesOfARunGoToStdoutNotesAndWarningsToStderr) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  log::say("step {}", 3);
  log::info("{} done", 3);
  log::say("{}", "braces {} and {0} stay");
  log::warn("{}", "careful");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step 3\nbraces {} and {0} stay\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "3 done\nwarning: careful\n");
}

TEST(Log, KeepsTheOrderOfWhatOthersPrint) {
  testing::internal::CaptureStdout();
  std::fputs("before\n", stdout);
  log::say("between");
  std::fputs("after\n", stdout);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "before\nbetween\nafter\n");
}

TEST(Log, OnOneTerminalEveryLineStandsAboveTheBar) {
  const Terminal terminal(80);
  {
    const Redirected out(STDOUT_FILENO, terminal.there()), err(STDERR_FILENO, terminal.there());
    log::draw_bar(" 10%|");
    log::say("a line");
    log::warn("careful");
    log::draw_bar(" 20%|");
    log::end_bar();
    log::say("the end");
  }
  const std::string written = terminal.text();
  const Lines lines = lines_on_screen(written);
  ASSERT_EQ(lines.size(), 4U) << written;
  EXPECT_EQ(lines[0], "a line");
  EXPECT_NE(lines[1].find("warning: careful"), std::string::npos) << "perhaps in colour";
  EXPECT_EQ(lines[2], " 20%|");
  EXPECT_EQ(lines[3], "the end");
  EXPECT_NE(written.find(std::string("a line\r\n") + kErasedLine + " 10%|"), std::string::npos)
      << "the bar is there again: " << written;
}

// Its reader (`| tee log`) may write to the same terminal, a little later.
TEST(Log, LinesForAPipeClearTheBarAndItComesBackLater) {
  const Terminal terminal(80);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  std::string before, after, end;  // on the terminal
  {
    const Redirected out(STDOUT_FILENO, pipe[1]), err(STDERR_FILENO, terminal.there());
    log::draw_bar(" 10%|");
    log::say("a line");
    log::draw_bar(" 20%|");
    before = terminal.text();
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    log::draw_bar(" 30%|");
    after = terminal.text();
    log::clear_bar();
    end = terminal.text();
  }
  EXPECT_EQ(before, std::string(kErasedLine) + " 10%|" + kErasedLine);
  EXPECT_EQ(after, std::string(kErasedLine) + " 30%|");
  EXPECT_EQ(end, kErasedLine);
  std::array<char, 32> got{};
  EXPECT_EQ(::read(pipe[0], got.data(), got.size()), 7);
  EXPECT_STREQ(got.data(), "a line\n") << "at once, and no bar";
  for (const int fd : pipe) close(fd);
}

TEST(Log, AFullDiskUnderStdoutIsWarnedOfOnce) {
  testing::internal::CaptureStderr();
  {
    const int full = ::open("/dev/full", O_WRONLY);
    const Redirected out(STDOUT_FILENO, full);
    log::say("lost");
    log::say("lost, too");
    close(full);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: standard output: cannot write: No space left on device; lines are lost, "
            "but the run continues\n");
}

TEST(Log, AReaderThatWentAwayIsNoFault) {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  close(pipe[0]);
  testing::internal::CaptureStderr();
  {
    const Redirected out(STDOUT_FILENO, pipe[1]);
    log::say("for nobody");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  close(pipe[1]);
  std::signal(SIGPIPE, before);
}

// Run by the test after it, in a process of its own: the logger looks at the environment once.
TEST(Log, ShowsABarAndAWarning) {
  if (can_redraw()) log::draw_bar("a bar");
  log::warn("careful");
}

TEST(Log, HasNoEscapesWhereTheUserOrTheTerminalWantsNone) {
  const auto written_with = [](const char* name, const char* value) {
    const Terminal terminal(80);
    const pid_t child = ::fork();
    if (child == 0) {
      ::setenv("TERM", "xterm", 1);
      ::unsetenv("NO_COLOR");
      ::setenv(name, value, 1);
      ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
      ::dup2(terminal.there(), STDERR_FILENO);
      ::execl("/proc/self/exe", "test_base", "--gtest_color=no",
              "--gtest_filter=Log.ShowsABarAndAWarning", nullptr);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return terminal.text();
  };
  const std::string coloured = written_with("NO_COLOR", "");
  EXPECT_NE(coloured.find("a bar"), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("\x1b[33m"), std::string::npos) << coloured;
  const std::string plain = written_with("NO_COLOR", "1");
  EXPECT_NE(plain.find("a bar"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("\x1b[33m"), std::string::npos) << plain;
  EXPECT_EQ(written_with("TERM", "dumb"), "warning: careful\r\n");
}

}  // namespace
}  // namespace capstan
