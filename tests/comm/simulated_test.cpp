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

// 16 ranks on machines with four each: fast within, slow across.
constexpr Network two_levels() {
  Network n{.seconds_per_message = 0.001, .bytes_per_second = 4e6};
  n.ranks_per_machine = 4;
  n.across = {.seconds_per_message = 0.01, .bytes_per_second = 1e6};
  return n;
}

TEST(Simulated, AGroupWithinOneMachineCostsWhatTheInnerNetworkDoes) {
  const Network n = two_levels();
  Network inner = n;
  inner.ranks_per_machine = 0;
  for (const Members& within : {Members{.first = 0, .count = 4}, Members{.first = 8, .count = 2},
                                Members{.first = 5, .stride = 2, .count = 2}}) {
    EXPECT_EQ(n.exchange_seconds(within, 1000, 2), inner.exchange_seconds(within, 1000, 2));
    EXPECT_EQ(n.personal_seconds(within, 1000), inner.personal_seconds(within, 1000));
  }
  EXPECT_EQ(n.pass_seconds(4, 7, 1000), inner.pass_seconds(4, 7, 1000));
  EXPECT_NEAR(inner.exchange_seconds({.count = 4}, 4000, 2), 2 * 3 * (0.001 + 0.001), 1e-12);
}

TEST(Simulated, AGroupOfSeveralMachinesCostsTheSlowerOfBothNetworks) {
  const Network n = two_levels();
  // Each rank alone on its machine.
  EXPECT_NEAR(n.exchange_seconds({.stride = 4, .count = 4}, 1000, 1), 3 * (0.01 + 0.001), 1e-12);
  // Four machines of four: slices cross side by side, from each rank to the three with its place.
  EXPECT_NEAR(n.exchange_seconds({.count = 16}, 1000, 2), 2 * 3 * (0.01 + 0.001), 1e-12);
  Network fast = n;
  fast.across = {.bytes_per_second = 1e9};
  EXPECT_NEAR(fast.exchange_seconds({.count = 16}, 1000, 1), 3 * (0.001 + 4 * 0.00025), 1e-12);
  // Each of the 12 ranks elsewhere gets what is its own.
  EXPECT_NEAR(n.personal_seconds({.count = 16}, 1000), 12 * (0.01 + 0.001), 1e-12);
  EXPECT_NEAR(n.pass_seconds(3, 4, 1000), 0.01 + 0.001, 1e-12);
}

TEST(Simulated, GroupsKnowWhereTheirRanksAre) {
  Sim s;
  const Communicator all = simulated({.rank = 5, .size = 16}, "all", two_levels());
  const auto waited = [&](const Members& members) {
    const double before = s.q.waited();
    Communicator group = all.split(members, "some", Lane::tensor);
    group.all_gather(s.q, s.x, group.slice_of(s.x)).join(s.q);
    return s.q.waited() - before;
  };
  const double slice = 4000;
  EXPECT_NEAR(waited({.first = 4, .count = 4}), 3 * (0.001 + slice / 4e6), 1e-9);
  EXPECT_NEAR(waited({.first = 1, .stride = 4, .count = 4}), 3 * (0.01 + slice / 1e6), 1e-9);
  // Some of all, in a collective of all.
  const double before = s.q.waited();
  const Communicator part = all.part({.first = 4, .count = 4});
  part.all_gather(s.q, s.x, part.slice_of(s.x)).join(s.q);
  EXPECT_NEAR(s.q.waited() - before, 3 * (0.001 + slice / 4e6), 1e-9);
}

TEST(Simulated, ThousandsOfRanksSumInSeveralSteps) {
  Sim s;
  Communicator group = simulated({.rank = 7, .size = 4000}, "all", {.bytes_per_second = 4e6});
  const Buffer scalars = group.make_scalars(s.arena);
  const Buffer one = s.arena.make(Category::data, DType::f64, {1}, "one");
  group.all_reduce(s.q, s.x).join(s.q);
  group.sum_scalars(s.q, *one, *scalars);
  // Each of 63 steps but the first reads what the others have added, and each writes.
  EXPECT_EQ(s.q.total().bytes, (4000 + 62 + 63) * 4 + (4000 + 62 + 63) * 8);
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
