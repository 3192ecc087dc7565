#include "comm/simulated.h"

#include <gtest/gtest.h>

#include "ops/elementwise.h"

namespace capstan {
namespace {

constexpr int64_t kValues = 4000;  // 16 KB in f32

// A device on which copying 16 KB takes 1 ms.
struct Sim {
  Arena arena;
  Queue q{Device::sim, arena, {.bytes_per_second = 2 * 16e6, .seconds_per_call = 0}};
  Buffer x = arena.make(Category::data, DType::f32, {kValues}, "x");
  Buffer y = arena.make(Category::data, DType::f32, {kValues}, "y");

  void compute(int ms) {
    for (int i = 0; i < ms; ++i) copy(q, y, x);
  }
};

// 4 ranks: three slices of 4 KB each way, which take 3 ms at 4 MB/s.
const Ranks kFour{.rank = 1, .size = 4};
constexpr Network kSlow{.bytes_per_second = 4e6};

TEST(Simulated, GathersOverlapWithComputation) {
  Sim s;
  Communicator group = simulated(kFour, "dp", kSlow);
  Work work = group.all_gather(s.q, s.x, group.slice_of(s.x));
  s.compute(2);
  EXPECT_NEAR(s.q.now(), 0.002, 1e-9);
  work.join(s.q);
  EXPECT_NEAR(s.q.now(), 0.003, 1e-9);
  EXPECT_NEAR(s.q.waited(), 0.001, 1e-9) << "what is exposed";
  work = group.all_gather(s.q, s.x, group.slice_of(s.x));
  s.compute(5);
  work.join(s.q);
  EXPECT_NEAR(s.q.now(), 0.008, 1e-9);
  EXPECT_NEAR(s.q.waited(), 0.001, 1e-9) << "all of the second is hidden";
}

TEST(Simulated, CollectivesOfAGroupComeOneAfterTheOther) {
  Sim s;
  Communicator group = simulated(kFour, "dp", kSlow), other = simulated(kFour, "tp", kSlow);
  Work first = group.all_gather(s.q, s.x, group.slice_of(s.x));
  Work second = group.all_gather(s.q, s.y, group.slice_of(s.y));
  Work beside = other.all_gather(s.q, s.y, group.slice_of(s.y));
  beside.join(s.q);
  EXPECT_NEAR(s.q.now(), 0.003, 1e-9) << "another group has its own clock";
  second.join(s.q);
  first.join(s.q);
  EXPECT_NEAR(s.q.now(), 0.006, 1e-9);
}

TEST(Simulated, SumsCostTheirMessagesAndAnOpOfTheQueue) {
  Sim s;
  Communicator group = simulated(kFour, "dp", {.seconds_per_message = 0.5});
  Work work = group.all_reduce(s.q, s.x);
  EXPECT_EQ(s.q.total().bytes, 0);
  work.join(s.q);
  EXPECT_NEAR(s.q.waited(), 2 * 3 * 0.5, 1e-9);
  EXPECT_EQ(s.q.total().bytes, 5 * 4000) << "four slices read, one written";
}

TEST(Simulated, ExchangesCostASliceForEachOtherRank) {
  Sim s;
  Communicator group = simulated(kFour, "dp", kSlow);
  Communicator same = simulated(kFour, "dp", kSlow), other = simulated(kFour, "dp", kSlow);
  Work work = group.all_to_all(s.q, s.y, s.x);
  s.compute(2);
  EXPECT_NEAR(s.q.now(), 0.002, 1e-9) << "it overlaps with computation";
  work.join(s.q);
  EXPECT_NEAR(s.q.now(), 0.003, 1e-9) << "three quarters of 16 KB at 4 MB/s";
  same.all_to_all(s.q, s.x, s.y).join(s.q);
  other.all_gather(s.q, s.x, s.y->rows(0, kValues / 4)).join(s.q);
  EXPECT_EQ(group.digest(), same.digest());
  EXPECT_NE(group.digest(), other.digest());

  Communicator slow_to_begin = simulated(kFour, "dp", {.seconds_per_message = 0.5, .room = true});
  const double before = s.q.waited();
  const auto bytes = s.q.total().bytes;
  slow_to_begin.all_to_all(s.q, s.y, s.x).join(s.q);
  EXPECT_NEAR(s.q.waited() - before, 3 * 0.5, 1e-9);
  EXPECT_EQ(s.q.total().bytes, bytes) << "nothing is summed";
}

TEST(Simulated, OneRankDoesNothing) {
  Sim s;
  Communicator group = simulated({}, "dp", kSlow);
  Work work = group.all_reduce(s.q, s.x);
  work.join(s.q);
  EXPECT_EQ(s.q.now(), 0);
}

}  // namespace
}  // namespace capstan
