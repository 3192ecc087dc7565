// What signals do to the program, at moments that are chosen by its system calls (signal_at).

#include <chrono>
#include <thread>

#include "checkpoint/find.h"
#include "cli/stop_signals.h"
#include "program.h"
#include "support/sanitized.h"

namespace capstan::cli_test {
namespace {

class Signals : public Cli {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers trace the process themselves";
  }
  // The program, with a signal at this system call after `from`.
  Outcome run_with_signal(int signal, int call, const std::string& from, const Words& words) const {
    const std::string tracer = fs::path(CAPSTAN_PROGRAM).parent_path() / "tests/signal_at";
    Words all = {tracer, std::to_string(signal), std::to_string(call), from, CAPSTAN_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    return finish(start_program(tracer.c_str(), all));
  }
  static constexpr int kCannotTrace = 77;
};

// The answer comes before anything else of the run's end.
TEST_F(Signals, AfterTheLastStepKeepTheModelAndSkipTheLastValidation) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    const Outcome o = run_with_signal(signal, 1, "step 3 |", tiny({"--out_dir=out"}));
    if (o.code == kCannotTrace) GTEST_SKIP() << "a process may not trace another one here";
    EXPECT_EQ(o.code, 128 + signal) << o.err;
    expect_holds(o.err, {name_of_signal(signal) + ": stopping ...",
                         "interrupted at the end: the final model is complete"});
    ASSERT_TRUE(fs::exists(at("out/final/MANIFEST.json")));
    const Outcome again = run(tiny({"--out_dir=out", "--resume=auto"}));
    EXPECT_EQ(again.code, 0) << again.err;
    expect_holds(again.out, {"out/final has all 3 steps", "Final evaluation"});
    fs::remove_all(at("out"));
  }
}

TEST_F(Signals, BeforeTheFirstStepEndTheRunWithNothingLeftBehind) {
  for (const char* from : {"handlers", "Verifying settings"}) {
    SCOPED_TRACE(from);
    const Outcome o = run_with_signal(SIGINT, 1, from, tiny({"--out_dir=out"}));
    if (o.code == kCannotTrace) GTEST_SKIP() << "a process may not trace another one here";
    EXPECT_EQ(o.code, 128 + SIGINT) << o.err;
    EXPECT_EQ(o.err.find("SIGINT: stopping ...\n"), o.err.rfind("stopping") - 8) << o.err;
    expect_holds(o.err, {"interrupted by SIGINT; there was nothing to save"});
    EXPECT_EQ(o.err.find("error"), std::string::npos) << o.err;
    EXPECT_TRUE(!fs::exists(at("out")) || newest_checkpoint(at("out")).newest == std::nullopt);
    if (fs::exists(at("out"))) {
      for (const auto& entry : fs::directory_iterator(at("out")))
        EXPECT_TRUE(entry.path().filename().string().starts_with(".capstan-lock")) << entry.path();
    }
    fs::remove_all(at("out"));
  }
}

// One document of 16 MB, of words that its tokenizer has not met: many seconds of work.
TEST_F(Signals, EndTokenizingWithinASecond) {
  std::string text;
  for (uint64_t i = 0; text.size() < 16'000'000; ++i)
    text += fmt::format("{:x}", i * 0x9E3779B97F4A7C15u);
  write("text.txt", text);
  const pid_t pid = start(
      tiny({"--out_dir=out", "--data.cache=false",
            std::string("--tokenizer_dir=") + CAPSTAN_SOURCE_DIR + "/tests/golden_tokens/bytes"}));
  // The run locks its folder before it reads.
  for (int i = 0; i < 10'000 && !fs::exists(at("out/.capstan-lock")); ++i) ::usleep(1'000);
  ::usleep(200'000);
  ::kill(pid, SIGINT);
  const Outcome o = finish(pid);
  EXPECT_EQ(o.code, 128 + SIGINT) << o.err;
  EXPECT_EQ(o.err, "SIGINT: stopping ...\ninterrupted by SIGINT; there was nothing to save\n");
  EXPECT_LT(o.seconds, 2) << "of the processor";
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(Signals, EndCommandsThatDoNotTrainAtOnce) {
  const Outcome o = run_with_signal(SIGINT, 1, "handlers", {"man"});
  if (o.code == kCannotTrace) GTEST_SKIP() << "a process may not trace another one here";
  EXPECT_EQ(o.code, 128 + SIGINT);
  EXPECT_EQ(o.out, "");
}

TEST_F(Signals, ThatWereIgnoredStayIgnored) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  const Outcome o = run_with_signal(SIGHUP, 1, "step 1 |", tiny({"--out_dir=out"}));
  ::signal(SIGHUP, before);
  if (o.code == kCannotTrace) GTEST_SKIP() << "a process may not trace another one here";
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.err.find("stopping"), std::string::npos) << o.err;
}

// The owner itself, in a process of its own.
TEST(StopSignalsDeathTest, AnswerOnceAndOnceMoreASecondLater) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        cli::StopSignals signals;
        const StopToken token = signals.token();
        ::raise(SIGTERM);
        ::raise(SIGINT);  // at once: nothing more to say
        std::this_thread::sleep_for(std::chrono::milliseconds(1100));
        ::raise(SIGINT);
        ::raise(SIGINT);
        ::_exit(token.signal() == SIGTERM ? 0 : 1);
      },
      testing::ExitedWithCode(0),
      "^SIGTERM: stopping \\.\\.\\.\nSIGINT: still stopping; kill -KILL [0-9]+ ends it at once, "
      "and "
      "loses what is not saved yet\n$");
}

TEST(StopSignalsDeathTest, LetGoOfASignalThatCameBefore) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        cli::StopSignals signals;
        ::raise(SIGUSR1);
        signals.let_go();
        ::_exit(0);
      },
      testing::KilledBySignal(SIGUSR1), "SIGUSR1: stopping");
}

TEST(StopSignalsDeathTest, EndAProcessThatHasNothingToSaveWhateverItDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto say = [](std::string_view text) {
    return ::write(STDERR_FILENO, text.data(), text.size()) > 0;
  };
  EXPECT_EXIT(
      {
        cli::StopSignals signals;
        cli::NothingToSave nothing([&] { say("cleaned up\n"); });
        ::raise(SIGTERM);
        for (volatile bool busy = true; busy;) {
        }
      },
      testing::ExitedWithCode(128 + SIGTERM),
      "^SIGTERM: stopping \\.\\.\\.\ncleaned up\ninterrupted by SIGTERM; there was nothing to "
      "save\n$");
  EXPECT_EXIT(
      {
        cli::StopSignals signals;
        cli::NothingToSave nothing([&] { say("cleaned up\n"); });
        nothing.over();
        ::raise(SIGTERM);
        std::this_thread::sleep_for(std::chrono::milliseconds(1000));
        ::_exit(7);
      },
      testing::ExitedWithCode(7), "^SIGTERM: stopping \\.\\.\\.\n$");
}

TEST(StopSignalsDeathTest, HaveNoEffectAfterTheOwnersEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        { cli::StopSignals signals; }
        ::raise(SIGTERM);
        ::_exit(5);
      },
      testing::ExitedWithCode(5), "^$");
}

}  // namespace
}  // namespace capstan::cli_test
