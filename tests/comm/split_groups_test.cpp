// Groups that are split from a group of threads.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "comm/thread_group.h"
#include "rank_memory.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

using std::chrono::milliseconds;

// Where ranks compute: several share one GPU.
class SplitGroups : public testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Comm, SplitGroups, testing::ValuesIn(devices_present()), device_name);

// Rows and columns of a mesh of 2 x 3, whose ranks call their collectives in any order.
TEST_P(SplitGroups, SplitGroupsHaveAnOrderOfTheirOwn) {
  std::mutex mutex;
  run_as_threads(6, [&](Communicator all) {
    Memory m(GetParam());
    const int row = all.rank() / 3, column = all.rank() % 3;
    const Communicator rows = all.split({.first = row * 3, .count = 3}, "row", Lane::tensor);
    const Communicator columns =
        all.split({.first = column, .stride = 3, .count = 2}, "column", Lane::context);
    const Communicator alone = all.split({.first = all.rank()}, "alone", Lane::comm);
    const auto value = [&](int64_t n) {
      Buffer x = m.arena.make(Category::data, DType::f32, {n}, "x");
      fill(m.q, x, static_cast<float>(1 << all.rank()));
      return x;
    };
    std::vector<Buffer> in_rows, in_columns;
    std::vector<Work> works;
    for (int i = 0; i < 50; ++i) {
      in_rows.push_back(value(3));
      in_columns.push_back(value(2));
    }
    for (size_t i = 0; i < 50; ++i) {  // every rank in another order
      const bool first = (static_cast<int>(i) + all.rank()) % 2 == 0;
      if (first) works.push_back(rows.all_reduce(m.q, in_rows[i]));
      works.push_back(columns.all_reduce(m.q, in_columns[i]));
      if (!first) works.push_back(rows.all_reduce(m.q, in_rows[i]));
    }
    const Buffer whole = value(6);
    Work sum = all.all_reduce(m.q, whole);
    for (Work& work : works) work.join(m.q);
    sum.join(m.q);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(alone.size(), 1);
    EXPECT_EQ(values_of(m.q, whole), Values(6, 63));
    for (size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(values_of(m.q, in_rows[i]), Values(3, row == 0 ? 7 : 56));
      EXPECT_EQ(values_of(m.q, in_columns[i]), Values(2, (1 << column) * 9));
    }
  });
}

// The ranks of a group, as each of them finds it: by a sum, a gather and an exchange.
void expect_ranks(Memory& m, const Communicator& group, std::vector<int> expected, int rank,
                  std::mutex& mutex) {
  const int n = group.size();
  const auto make = [&](int64_t values) {
    Buffer x = m.arena.make(Category::data, DType::f32, {values}, "x");
    fill(m.q, x, static_cast<float>(rank));
    return x;
  };
  const Buffer sum = make(n), gathered = make(n), to = make(n), mine = make(1), from = make(n);
  Work works[] = {group.all_reduce(m.q, sum), group.all_gather(m.q, gathered, mine),
                  group.all_to_all(m.q, to, from)};
  for (Work& work : works) work.join(m.q);
  const std::lock_guard lock(mutex);
  const Values ranks(expected.begin(), expected.end());
  double total = 0;
  for (const double r : ranks) total += r;
  EXPECT_EQ(values_of(m.q, sum), Values(ranks.size(), total)) << group.name();
  EXPECT_EQ(values_of(m.q, gathered), ranks) << group.name();
  EXPECT_EQ(values_of(m.q, to), ranks) << group.name();
  EXPECT_EQ(expected[static_cast<size_t>(group.rank())], rank) << group.name();
}

// Two stages of two data ranks of two tensor ranks each: rank = (stage * 2 + data) * 2 + tensor.
TEST_P(SplitGroups, SplitAlongThreeAxes) {
  std::mutex mutex;
  run_as_threads(8, [&](Communicator all) {
    Memory m(GetParam());
    const int stage = all.rank() / 4, d = all.rank() / 2 % 2, t = all.rank() % 2;
    const Communicator data =
        all.split({.first = stage * 4 + t, .stride = 2, .count = 2}, "data", Lane::comm);
    const Communicator tensor =
        all.split({.first = (stage * 2 + d) * 2, .count = 2}, "tensor", Lane::tensor);
    const Communicator pipe =
        all.split({.first = d * 2 + t, .stride = 4, .count = 2}, "pipe", Lane::receive_down);
    const int s = stage * 4;
    expect_ranks(m, data, {s + t, s + 2 + t}, all.rank(), mutex);
    expect_ranks(m, tensor, {s + 2 * d, s + 2 * d + 1}, all.rank(), mutex);
    expect_ranks(m, pipe, {2 * d + t, 4 + 2 * d + t}, all.rank(), mutex);
  });
}

// In one call; the second time by strides, so that the groups lie between each other, and the third
// time backwards.
TEST_P(SplitGroups, SplitIntoGroupsOfUnequalSize) {
  std::mutex mutex;
  run_as_threads(5, [&](Communicator all) {
    Memory m(GetParam());
    const int rank = all.rank();
    const auto ranks = [&](const Members& members) {
      std::vector<int> some;
      for (int i = 0; i < members.count; ++i) some.push_back(members.at(i));
      return some;
    };
    const Members halves[] = {rank < 3 ? Members{.count = 3} : Members{.first = 3, .count = 2},
                              rank % 2 == 0 ? Members{.stride = 2, .count = 3}
                                            : Members{.first = 1, .stride = 2, .count = 2},
                              rank < 3 ? Members{.first = 2, .stride = -1, .count = 3}
                                       : Members{.first = 4, .stride = -1, .count = 2}};
    std::vector<Communicator> groups;
    for (const Members& members : halves)
      groups.push_back(all.split(members, fmt::format("from {}", members.first), Lane::comm));
    for (size_t i = 0; i < groups.size(); ++i)
      expect_ranks(m, groups[i], ranks(halves[i]), rank, mutex);
    const Communicator some =
        all.split(rank == 4 ? Members{.first = 4} : Members{.count = 4}, "but one", Lane::comm);
    if (rank == 4) return;
    expect_ranks(m, some, {0, 1, 2, 3}, rank, mutex);
  });
}

// A ring in which every rank sends before it receives.
TEST_P(SplitGroups, PassToTheNextRank) {
  const int ranks = 4;
  std::mutex mutex;
  run_as_threads(ranks, [&](Communicator all) {
    Memory m(GetParam());
    // Link i goes from rank i to i + 1; the last one back to rank 0, from the other end.
    std::vector<Communicator> links;
    for (int i = 0; i + 1 < ranks; ++i) {
      const bool ours = all.rank() == i || all.rank() == i + 1;
      links.push_back(
          all.split(ours ? Members{.first = i, .count = 2} : Members{.first = all.rank()}, "link",
                    all.rank() == i ? Lane::send_down : Lane::receive_down));
    }
    std::vector<Buffer> sent, received;
    std::vector<Work> works;
    for (int round = 0; round < 200; ++round) {
      if (all.rank() + 1 < ranks) {
        sent.push_back(m.random(DType::bf16, 1000, all.rank(), static_cast<uint64_t>(round)));
        works.push_back(links[static_cast<size_t>(all.rank())].pass(m.q, sent.back()));
      }
      if (all.rank() > 0) {
        received.push_back(m.arena.make(Category::data, DType::bf16, {1000}, "received"));
        works.push_back(links[static_cast<size_t>(all.rank() - 1)].pass(m.q, received.back()));
      }
    }
    for (Work& work : works) work.join(m.q);
    const std::lock_guard lock(mutex);
    for (size_t round = 0; round < received.size(); ++round)
      EXPECT_EQ(values_of(m.q, received[round]),
                random_values(DType::bf16, 1000, all.rank() - 1, round));
  });
}

TEST(SplitGroup, SplitGroupsEndTogether) {
  for (const bool from_part : {false, true}) {
    const std::string why = message_of(Fault::file, [&] {
      run_as_threads(4, [&](Communicator all) {
        Memory m;
        const Communicator pair =
            all.split({.first = all.rank() / 2 * 2, .count = 2}, "pair", Lane::tensor);
        const Buffer x = m.arena.make(Category::data, DType::f32, {4}, "x");
        if (all.rank() == 3) fail(Fault::file, "no such file");
        Work work = from_part ? pair.all_reduce(m.q, x) : all.all_reduce(m.q, x);
        work.join(m.q);
        for (int i = 0; i < 1000; ++i) {  // ranks 0 and 1 hear of it, too
          std::this_thread::sleep_for(milliseconds(1));
          pair.check();
        }
        ADD_FAILURE() << "rank " << all.rank() << " did not end";
      });
    });
    EXPECT_EQ(why, "no such file");
  }
}

TEST(SplitGroup, NameTheRanksOfASplitGroupByTheirNumberAmongAll) {
  const std::string why = message_of(Fault::peer, [] {
    run_as_threads(
        4,
        [](Communicator all) {
          Memory m;
          const Communicator pair =
              all.split({.first = all.rank() % 2, .stride = 2, .count = 2}, "pair", Lane::tensor);
          const Buffer x = m.arena.make(Category::data, DType::f32, {4}, "x");
          if (all.rank() == 3) return std::this_thread::sleep_for(milliseconds(400));
          Work work = pair.all_reduce(m.q, x);
          work.join(m.q);
        },
        milliseconds(100));
  });
  EXPECT_EQ(
      why,
      "group pair, collective 0: rank 1 waited 0.1 s for rank 3 in all_reduce of 4 f32 values");
}

TEST(SplitGroup, NameTheRankThatHoldsAnotherGroup) {
  const std::string why = message_of(Fault::peer, [] {
    run_as_threads(
        3,
        [](Communicator all) {
          Memory m;
          const bool in_first = all.rank()<2, in_second = all.rank()> 0;
          const Members alone{.first = all.rank()};
          const Communicator groups[] = {
              all.split(in_first ? Members{.count = 2} : alone, "first", Lane::tensor),
              all.split(in_second ? Members{.first = 1, .count = 2} : alone, "second",
                        Lane::context)};
          const Buffer x = m.arena.make(Category::data, DType::f32, {4}, "x");
          if (all.rank() == 2) return std::this_thread::sleep_for(milliseconds(800));
          if (all.rank() == 1) std::this_thread::sleep_for(milliseconds(50));
          Work work = groups[all.rank()].all_reduce(m.q, x);  // rank 0 has waited for longer
          work.join(m.q);
        },
        milliseconds(200));
  });
  EXPECT_EQ(why,
            "group first, collective 0: rank 0 waited 0.2 s for rank 2 in all_reduce of 4 f32 "
            "values (rank 1 waits for rank 2)");
}

}  // namespace
}  // namespace capstan::test
