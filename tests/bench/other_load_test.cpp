#include "bench/other_load.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>

namespace capstan {
namespace {

constexpr const char* kStat =
    "cpu  100 0 0 0 0 0 0 0 0 0\n"
    "cpu0 10 2 3 1000 500 4 5 6 9 9\n"
    "cpu1 100 0 0 0 0 0 0 0 0 0\n"
    "cpu10 7 0 0 0 0 0 0 0\n"
    "intr 1 2 3\n";

TEST(OtherLoads, CountAllButIdleTimeOfTheseProcessors) {
  const std::array<int, 1> first = {0};
  const std::array<int, 2> two = {0, 10}, missing = {0, 2};
  EXPECT_DOUBLE_EQ(*busy_seconds(kStat, first, 100), 0.3) << "guests are in the time of users";
  EXPECT_DOUBLE_EQ(*busy_seconds(kStat, two, 100), 0.37);
  EXPECT_FALSE(busy_seconds(kStat, missing, 100));
  EXPECT_FALSE(busy_seconds(kStat, {}, 100));
  EXPECT_FALSE(busy_seconds("", first, 100));
  EXPECT_FALSE(busy_seconds("cpu0 1 2 3\n", first, 100)) << "without columns for interrupts";
}

void compute_for(double seconds) {
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() <
         seconds) {
  }
}

// Other processes compute without an end, more than there are processors, while this one does.
TEST(OtherLoads, NoticeProgramsThatCompute) {
  constexpr long kFew = 4;
  const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (!OtherLoad().processors()) GTEST_SKIP() << "the system does not say what others use";
  if (processors > kFew) GTEST_SKIP() << "it takes too many to disturb one here";
  std::vector<pid_t> others;
  for (long i = 0; i < 2 * processors; ++i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      constexpr double kIfNobodyEndsIt = 20;
      compute_for(kIfNobodyEndsIt);
      ::_exit(0);
    }
    others.push_back(pid);
  }
  const OtherLoad load;
  compute_for(0.6);
  const auto found = load.processors();
  for (const pid_t pid : others) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  ASSERT_TRUE(found);
  // This one has a third of a processor, or a little more; its threads could have had one each.
  EXPECT_GT(*found, 0.3);
  EXPECT_LT(*found, static_cast<double>(processors) + 0.5);
}

}  // namespace
}  // namespace capstan
