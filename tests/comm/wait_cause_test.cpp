#include "comm/wait_cause.h"

#include <gtest/gtest.h>

#include <map>

namespace capstan::test {
namespace {

using Kind = RankState::Kind;
using States = std::map<int, RankState>;

// Whom rank 0 waits for, as a message tells it.
std::string cause(const std::vector<int>& direct, const States& states) {
  const WaitCause found = cause_of_wait(0, direct, [&](int rank) {
    const auto state = states.find(rank);
    return state == states.end() ? RankState() : state->second;
  });
  std::string text;
  for (const int rank : found.ranks) text += std::to_string(rank) + " ";
  return text + found.how;
}

RankState waits(std::vector<int> ranks) {
  return {Kind::waits, std::move(ranks)};
}
const RankState kSilent{Kind::silent}, kBusy{Kind::busy};

TEST(WaitCause, IsWhoIsSilentAmongThoseThatAreWaitedFor) {
  EXPECT_EQ(cause({1, 2}, {{1, waits({2})}, {2, kSilent}}), "2 ");
  EXPECT_EQ(cause({1, 2}, {{1, kBusy}, {2, kSilent}}), "2 ");
  EXPECT_EQ(cause({3, 1}, {{1, kSilent}, {3, kSilent}}), "1 3 ");
}

TEST(WaitCause, IsFoundThroughRanksThatWait) {
  EXPECT_EQ(cause({2}, {{2, waits({3})}, {3, kSilent}}), "3  (rank 2 waits for rank 3)");
  EXPECT_EQ(cause({2}, {{2, waits({4, 3})}, {3, waits({5})}, {4, waits({0})}, {5, kSilent}}),
            "5  (rank 2 waits for rank 3, rank 3 for rank 5)");
}

TEST(WaitCause, IsABusyRankIfNoneIsSilent) {
  EXPECT_EQ(cause({1, 2}, {{1, waits({2})}, {2, kBusy}}), "2 ");
  EXPECT_EQ(cause({1}, {{1, waits({2})}, {2, kBusy}}), "2  (rank 1 waits for rank 2)");
}

TEST(WaitCause, IsARingIfEachWaitsForAnother) {
  EXPECT_EQ(cause({2}, {{2, waits({3})}, {3, waits({0})}}),
            "2  (in a ring: rank 2 waits for rank 3, rank 3 for rank 0)");
  EXPECT_EQ(cause({1}, {{1, waits({2})}, {2, waits({3})}, {3, waits({2})}}),
            "1  (in a ring: rank 1 waits for rank 2, rank 2 for rank 3, rank 3 for rank 2)");
}

TEST(WaitCause, IsTheLastOfWhomSomethingIsKnown) {
  EXPECT_EQ(cause({2, 1}, {}), "1 2 ");
  EXPECT_EQ(cause({1}, {{1, waits({2})}}), "2  (rank 1 waits for rank 2)");
  EXPECT_EQ(cause({1}, {{1, waits({})}}), "1 ");
  EXPECT_EQ(cause({}, {}), "");
}

}  // namespace
}  // namespace capstan::test
