#include "comm/launch_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

namespace capstan::test {
namespace {

using Doing = LaunchWatch::Doing;
using std::chrono::milliseconds;

// A job of which no other test has ranks.
class Launched : public testing::Test {
 protected:
  Launched() { launched_here(3); }
  ~Launched() override {
    ::unsetenv("PMIX_NAMESPACE");
    ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  static void launched_here(int ranks) {
    ::setenv("PMIX_NAMESPACE", ("test-" + std::to_string(::getpid())).c_str(), 1);
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks).c_str(), 1);
  }
  // What rank 0 of so many tells when it has waited long enough.
  static std::string told(int size, Doing doing = Doing::start) {
    std::string text;
    std::atomic<bool> done = false;
    LaunchWatch watch({0, size}, "here", [&](const std::string& why, bool) {
      text = why;
      done = true;
    });
    watch.limit(doing, milliseconds(50));
    for (int i = 0; i < 5000 && !done; ++i) std::this_thread::sleep_for(milliseconds(1));
    return text;
  }
};

// Another process that is this rank, until the end of its life. Returns when it is there.
class RankThere {
 public:
  explicit RankThere(const Ranks& ranks, bool stopped = false) {
    int ready[2] = {};
    EXPECT_EQ(::pipe(ready), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      Presence presence(*launched_job(), ranks);
      if (::write(ready[1], "1", 1) != 1) ::_exit(1);
      for (int i = 0; i < 20'000 && !stopped; ++i) {  // for 20 s, if nobody ends it
        presence.answer();
        ::usleep(1000);
      }
      ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~RankThere() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST_F(Launched, RanksThatDidNotComeAreNamed) {
  const RankThere two({2, 3});
  EXPECT_EQ(told(3), "MPI did not start within 0.05 s: rank 1 on here has not reached that point");
}

TEST_F(Launched, ARankThatDoesNotAnswerIsNamedWithItsProcess) {
  const RankThere one({1, 3}), two({2, 3}, true);
  const std::string stopped =
      "rank 2 on here (process " + std::to_string(two.pid()) + ") does not answer";
  EXPECT_EQ(told(3), "MPI did not start within 0.05 s: " + stopped);
  EXPECT_EQ(told(3, Doing::end), "MPI did not end within 0.05 s: " + stopped);
}

TEST_F(Launched, WhatIsKnownOfOtherMachinesIsTold) {
  launched_here(2);
  {
    const RankThere one({1, 4});
    EXPECT_EQ(told(4),
              "MPI did not start within 0.05 s: the 2 ranks on here wait, so the cause is on "
              "another machine");
  }
  EXPECT_EQ(told(4),
            "MPI did not start within 0.05 s: 1 of the 2 ranks on here has not reached that point; "
            "rank 0 is there");
}

TEST_F(Launched, NothingIsClaimedThatIsNotKnown) {
  ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  EXPECT_EQ(told(3),
            "MPI did not start within 0.05 s: rank 0 on here waits; of other ranks nothing is "
            "known");
  ::unsetenv("PMIX_NAMESPACE");
  EXPECT_EQ(told(3), "MPI did not start within 0.05 s: which rank it waits for is not known");
}

TEST_F(Launched, RanksThatWaitAnswerEachOtherAndOneTells) {
  launched_here(4);
  constexpr int kRanks = 4;
  std::atomic<int> tell = 0, done = 0;
  std::string text;
  std::vector<std::unique_ptr<LaunchWatch>> watches;
  for (int r = 0; r < kRanks; ++r)
    watches.push_back(std::make_unique<LaunchWatch>(Ranks{r, kRanks}, "here",
                                                    [&](const std::string& why, bool tells) {
                                                      if (tells) text = why, ++tell;
                                                      ++done;
                                                    }));
  for (const auto& watch : watches) watch->limit(Doing::start, milliseconds(100));
  for (int i = 0; i < 5000 && done < kRanks; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(done, kRanks);
  EXPECT_EQ(tell, 1);
  EXPECT_EQ(text,
            "MPI did not start within 0.1 s: all ranks answer, so the cause is MPI or mpirun");
}

TEST_F(Launched, WhoIsInTimeHearsNothing) {
  bool over = false;
  {
    LaunchWatch watch({0, 2}, "here", [&](const std::string&, bool) { over = true; });
    watch.limit(Doing::start, milliseconds(30));
    watch.lift();
    std::this_thread::sleep_for(milliseconds(80));
  }
  EXPECT_FALSE(over);
}

}  // namespace
}  // namespace capstan::test
