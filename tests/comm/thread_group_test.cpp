#include "comm/thread_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "rank_memory.h"
#include "support/message_of.h"

namespace capstan::test {
namespace {

using std::chrono::milliseconds;

// Where ranks compute: several share one GPU.
class ThreadGroups : public testing::TestWithParam<Device> {};
INSTANTIATE_TEST_SUITE_P(Comm, ThreadGroups, testing::ValuesIn(devices_present()), device_name);

TEST_P(ThreadGroups, RanksSeeTheSameSumsInRankOrder) {
  for (const int ranks : {1, 2, 3, 8})
    for (const DType type : {DType::f32, DType::bf16}) {
      const int64_t n = 24 * 13;
      const Values sums = sum_over_ranks(type, n, ranks, 5);
      std::mutex mutex;
      run_as_threads(ranks, [&](Communicator group) {
        Memory m(GetParam());
        const Buffer whole = m.random(type, n, group.rank(), 5);
        const Buffer mine = m.random(type, n / ranks, group.rank(), 6);
        const Values before = values_of(m.q, mine);
        Work sum = group.reduce_scatter(m.q, mine, whole);
        sum.join(m.q);
        Work all = group.all_reduce(m.q, whole);
        all.join(m.q);
        const std::lock_guard lock(mutex);  // expectations are not for many threads at once
        EXPECT_EQ(values_of(m.q, mine), part(sums, group.rank(), ranks));
        EXPECT_EQ(values_of(m.q, whole), sums) << ranks;
      });
    }
}

TEST_P(ThreadGroups, SumsCanAddAndBeInPlace) {
  const int ranks = 3;
  const int64_t n = 300;
  const Values sums = sum_over_ranks(DType::f32, n, ranks, 5);
  std::mutex mutex;
  run_as_threads(ranks, [&](Communicator group) {
    Memory m(GetParam());
    const Buffer whole = m.random(DType::f32, n, group.rank(), 5);
    const Buffer mine = m.arena.make(Category::data, DType::f32, {n / ranks}, "mine");
    for (int i = 0; i < 2; ++i) {
      Work sum = group.reduce_scatter(m.q, mine, whole, Write::add);
      sum.join(m.q);
    }
    Work in_place = group.reduce_scatter(m.q, group.slice_of(whole), whole);
    in_place.join(m.q);
    const std::lock_guard lock(mutex);
    const Values once = part(sums, group.rank(), ranks), found = values_of(m.q, mine);
    EXPECT_EQ(values_of(m.q, group.slice_of(whole)), once);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(found[i], 2 * once[i], 1e-5);
  });
}

TEST_P(ThreadGroups, GathersFromAnywhereAndInPlace) {
  for (const int ranks : {1, 2, 5}) {
    const int64_t n = 40;
    Values expected;
    for (int r = 0; r < ranks; ++r) {
      const Values x = random_values(DType::bf16, n, r, 5);
      expected.insert(expected.end(), x.begin(), x.end());
    }
    std::mutex mutex;
    run_as_threads(ranks, [&](Communicator group) {
      Memory m(GetParam());
      const Buffer mine = m.random(DType::bf16, n, group.rank(), 5);
      const Buffer apart = m.arena.make(Category::data, DType::bf16, {n * ranks}, "whole");
      const Buffer in_place = m.arena.make(Category::data, DType::bf16, {n * ranks}, "whole");
      copy(m.q, group.slice_of(in_place), mine);
      Work first = group.all_gather(m.q, apart, mine);
      Work second = group.all_gather(m.q, in_place, group.slice_of(in_place));
      second.join(m.q);
      first.join(m.q);
      const std::lock_guard lock(mutex);
      EXPECT_EQ(values_of(m.q, apart), expected);
      EXPECT_EQ(values_of(m.q, in_place), expected);
    });
  }
}

using Bytes = std::vector<std::byte>;

// Any bits, which a transport must not change: as floats some are NaN.
Bytes bits(int64_t bytes, int rank, int round) {
  Bytes all(static_cast<size_t>(bytes));
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<std::byte>(31 * i + i / 251 + static_cast<size_t>(97 * rank + 7 * round));
  return all;
}

Bytes bytes_of(Queue& q, const Tensor& x) {
  Bytes all(static_cast<size_t>(x.nbytes()));
  q.download(all.data(), x);
  return all;
}

// What a rank has when every rank has sent bits().
Bytes exchanged(int64_t bytes, const Ranks& ranks, int round) {
  Bytes all;
  const int64_t each = bytes / ranks.size;
  for (int r = 0; r < ranks.size; ++r) {
    const Bytes theirs = bits(bytes, r, round);
    all.insert(all.end(), theirs.begin() + ranks.rank * each,
               theirs.begin() + (ranks.rank + 1) * each);
  }
  return all;
}

// Two exchanges are in flight at once; then what was sent is overwritten, and what was received is
// sent back.
TEST_P(ThreadGroups, ExchangeSlicesBitForBit) {
  for (const int ranks : {1, 2, 3, 4})
    for (const DType type : {DType::f32, DType::bf16, DType::u8})
      for (const int64_t each : {1, 7, 501}) {
        const int64_t n = ranks * each, bytes = n * size_of(type);
        std::mutex mutex;
        run_as_threads(ranks, [&](Communicator group) {
          Memory m(GetParam());
          Buffer from[2], to[2];
          Work works[2];
          for (int i = 0; i < 2; ++i) {
            from[i] = m.arena.make(Category::data, type, {n}, "from");
            to[i] = m.arena.make(Category::data, type, {n}, "to");
            m.q.upload(from[i], bits(bytes, group.rank(), i).data());
            works[i] = group.all_to_all(m.q, to[i], from[i]);
          }
          Bytes found[2];
          for (int i = 1; i >= 0; --i) {
            works[i].join(m.q);
            m.q.upload(from[i], Bytes(static_cast<size_t>(bytes)).data());
            found[i] = bytes_of(m.q, to[i]);
          }
          Work back = group.all_to_all(m.q, from[0], to[0]);
          back.join(m.q);
          const std::lock_guard lock(mutex);
          for (int i = 0; i < 2; ++i) EXPECT_EQ(found[i], exchanged(bytes, group.ranks(), i));
          EXPECT_EQ(bytes_of(m.q, from[0]), bits(bytes, group.rank(), 0))
              << ranks << " ranks, " << name_of(type) << ", slices of " << each;
        });
      }
}

// Parts of a group, ranks on two machines, and tensors of several dimensions.
TEST_P(ThreadGroups, ExchangeAmongSomeRanks) {
  std::mutex mutex;
  run_as_threads(4, [&](Communicator all) {
    Memory m(GetParam());
    const Communicator groups[] = {
        all.part({.first = all.rank() % 2, .stride = 2, .count = 2}), all.by_machine(2),
        all.part({.first = all.rank() / 2 * 2, .count = 2}).by_machine(2)};
    for (const Communicator& group : groups) {
      const Buffer from = m.arena.make(Category::data, DType::bf16, {4, 3, 5}, "from"),
                   to = m.arena.make(Category::data, DType::bf16, {12, 5}, "to");
      m.q.upload(from, bits(from->nbytes(), group.rank(), group.size()).data());
      Work work = group.all_to_all(m.q, to, from);
      work.join(m.q);
      const std::lock_guard lock(mutex);
      // A rank of another part has sent the same to the others of its own.
      EXPECT_EQ(bytes_of(m.q, to), exchanged(to->nbytes(), group.ranks(), group.size()));
    }
  });
}

TEST(ThreadGroup, AnExchangeNeedsEqualAndSeparateMemory) {
  Memory m;
  const Buffer x = m.arena.make(Category::data, DType::f32, {8}, "x");
  const Communicator alone;
  const auto message = [&](const Tensor& to, const Tensor& from) {
    return message_of(Fault::bug, [&] { alone.all_to_all(m.q, to, from).join(m.q); });
  };
  EXPECT_EQ(message(x->rows(0, 5), x->rows(3, 5)),
            "all_to_all among 1 ranks: what is sent and what is received share memory");
  EXPECT_EQ(message(x->rows(0, 3), x->rows(3, 5)),
            "all_to_all among 1 ranks: [5] f32 cannot be exchanged for slices of [3] f32");
  EXPECT_EQ(message_of(Fault::bug,
                       [&] {
                         run_as_threads(2, [&](Communicator group) {
                           group.all_to_all(m.q, x->rows(0, 3), x->rows(3, 3)).join(m.q);
                         });
                       }),
            "all_to_all among 2 ranks: [3] f32 cannot be exchanged for slices of [3] f32");
}

// More than a group keeps at once, begun long before they are joined, by ranks that wait at other
// times each.
TEST_P(ThreadGroups, ManyCollectivesInFlightKeepTheirOrder) {
  const int ranks = 4;
  const int count = 400;
  std::atomic<int> wrong = 0;
  run_as_threads(ranks, [&](Communicator group) {
    Memory m(GetParam());
    std::vector<Buffer> all;
    std::vector<Work> works;
    for (int i = 0; i < count; ++i) {
      all.push_back(m.arena.make(Category::data, DType::f32, {ranks}, "x"));
      fill(m.q, all.back(), static_cast<float>(i * (group.rank() + 1)));
      works.push_back(group.all_reduce(m.q, all.back()));
      if (i % (37 + group.rank()) == 0) std::this_thread::sleep_for(milliseconds(1));
    }
    for (Work& work : works) work.join(m.q);
    for (int i = 0; i < count; ++i)
      wrong += values_of(m.q, all[static_cast<size_t>(i)]) != Values(ranks, 10.0 * i);
  });
  EXPECT_EQ(wrong, 0);
}

// A rank whose work takes long holds the others' collectives, and they hold its memory: no rank
// reads values that are not there yet, or writes over ones that others still read.
TEST_P(ThreadGroups, SlowRanksAreWaitedFor) {
  const int ranks = 3, rounds = 20;
  const int64_t n = GetParam() == Device::cpu ? 3 << 8 : 3 << 20;
  std::atomic<int> wrong = 0;
  run_as_threads(ranks, [&](Communicator group) {
    Memory m(GetParam());
    const Buffer whole = m.arena.make(Category::data, DType::f32, {n}, "whole"),
                 mine = m.arena.make(Category::data, DType::f32, {n / ranks}, "mine"),
                 sum = m.arena.make(Category::data, DType::f32, {n / ranks}, "sum"),
                 load = m.arena.make(Category::data, DType::f32, {8 * n}, "load");
    for (int round = 0; round < rounds; ++round) {
      if (round % ranks == group.rank())
        for (int i = 0; i < 40; ++i) fill(m.q, load, static_cast<float>(i));
      const auto value = static_cast<float>(round * (group.rank() + 1));
      fill(m.q, mine, value);
      Work gather = group.all_gather(m.q, whole, mine);
      gather.join(m.q);
      fill(m.q, mine, -1);  // after all have read it
      Work reduce = group.reduce_scatter(m.q, sum, whole);
      reduce.join(m.q);
      fill(m.q, whole, -1);
      // Every rank has the same whole, of which this is one value for each.
      const Values found = values_of(m.q, sum);
      const double expected = 3.0 * round * (group.rank() + 1);
      wrong += static_cast<int>(
          std::count_if(found.begin(), found.end(), [&](double x) { return x != expected; }));
    }
  });
  EXPECT_EQ(wrong, 0);
}

// Collectives cut a graph into parts, which are replayed around them.
TEST_P(ThreadGroups, MayBeCalledInsideOfGraphs) {
  const int ranks = 2;
  std::atomic<int> wrong = 0;
  run_as_threads(ranks, [&](Communicator group) {
    Memory m(GetParam());
    const Buffer x = m.arena.make(Category::data, DType::f32, {64}, "x"),
                 y = m.arena.make(Category::data, DType::f32, {64}, "y");
    fill(m.q, x, static_cast<float>(1 + group.rank()));
    for (int i = 0; i < 8; ++i) {
      m.q.graph({1, 2, 3, 4, 5, i / 4}, [&] {
        copy(m.q, y, x);
        Work sum = group.all_reduce(m.q, y);
        sum.join(m.q);
        Work again = group.all_reduce(m.q, y);
        again.join(m.q);
        add(m.q, x, x, y);
      });
    }
    double a = 1, b = 2;
    for (int i = 0; i < 8; ++i) {
      const double both = 2 * (a + b);
      a += both;
      b += both;
    }
    const double expected = group.rank() == 0 ? a : b;
    for (const double found : values_of(m.q, x)) wrong += found != expected;
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadGroup, AMismatchIsNamedOnEveryRank) {
  std::mutex mutex;
  std::set<std::string> said;
  int ended = 0;
  const auto body = [&](Communicator group) {
    Memory m;
    const Buffer x = m.arena.make(Category::data, DType::f32, {6}, "x");
    const Buffer y = m.arena.make(Category::data, DType::f32, {12}, "y");
    try {
      Work work = group.all_reduce(m.q, group.rank() == 1 ? y : x);
      work.join(m.q);
    } catch (const Error& e) {
      const std::lock_guard lock(mutex);
      ++ended;
      said.insert(e.what());
      throw;
    }
  };
  const std::string thrown = message_of(Fault::peer, [&] { run_as_threads(3, body); });
  EXPECT_EQ(said.size(), 1u);
  EXPECT_EQ(ended, 3);
  for (const char* part : {"all_reduce of 6 f32 values", "all_reduce of 12 f32 values", "rank 1"})
    EXPECT_NE(thrown.find(part), std::string::npos) << thrown;
}

TEST(ThreadGroup, AnExchangeIsNotTakenForAnotherCollectiveOfItsSize) {
  const std::string thrown = message_of(Fault::peer, [] {
    run_as_threads(3, [](Communicator group) {
      Memory m;
      const Buffer x = m.arena.make(Category::data, DType::f32, {6}, "x");
      const Buffer y = m.arena.make(Category::data, DType::f32, {6}, "y");
      Work work = group.rank() == 1 ? group.all_gather(m.q, x, group.slice_of(y))
                                    : group.all_to_all(m.q, x, y);
      work.join(m.q);
    });
  });
  for (const char* part : {"all_to_all of 6 f32 values", "rank 1", "all_gather of 6 f32 values"})
    EXPECT_NE(thrown.find(part), std::string::npos) << thrown;
}

TEST(ThreadGroup, ARankThatFailsEndsTheOthersWithItsOwnError) {
  std::atomic<int> ended = 0;
  const auto body = [&](Communicator group) {
    Memory m;
    const Buffer x = m.arena.make(Category::data, DType::f32, {4}, "x");
    if (group.rank() == 2) fail(Fault::file, "no such file");
    try {
      Work work = group.all_reduce(m.q, x);
      work.join(m.q);
    } catch (const Error& e) {
      ended += e.fault() == Fault::peer && std::string(e.what()) == "rank 2: no such file";
      throw;
    }
  };
  EXPECT_EQ(message_of(Fault::file, [&] { run_as_threads(4, body); }), "no such file");
  EXPECT_EQ(ended, 3);
}

TEST(ThreadGroup, ARankThatIsSilentIsNamed) {
  const auto body = [](Communicator group) {
    Memory m;
    const Buffer x = m.arena.make(Category::data, DType::f32, {4}, "x");
    if (group.rank() == 1) return;
    Work work = group.all_reduce(m.q, x);
    work.join(m.q);
  };
  EXPECT_EQ(message_of(Fault::peer, [&] { run_as_threads(2, body, milliseconds(200)); }),
            "group dp, collective 0: rank 0 waited 0.2 s for rank 1 in all_reduce of 4 f32 values");
}

}  // namespace
}  // namespace capstan::test
