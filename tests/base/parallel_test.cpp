#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

namespace capstan {
namespace {

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges ranges_of(int64_t n, int64_t grain) {
  Ranges ranges;
  std::mutex mutex;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

// Runs with a given number of threads, whatever the machine has.
class Threads {
 public:
  explicit Threads(int n) : before_(omp_get_max_threads()) { omp_set_num_threads(n); }
  ~Threads() { omp_set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

TEST(ParallelFor, CoversEveryIndexOnceInMultiplesOfTheGrain) {
  for (const int threads : {1, 2, 3, 7}) {
    const Threads guard(threads);
    for (const int64_t n : {1, 2, 31, 32, 33, 100, 1001})
      for (const int64_t grain : {1, 3, 32, 5000}) {
        const Ranges ranges = ranges_of(n, grain);
        ASSERT_LE(static_cast<int>(ranges.size()), threads);
        int64_t next = 0;
        for (const auto& [begin, end] : ranges) {
          ASSERT_EQ(begin, next);
          ASSERT_LT(begin, end);
          ASSERT_EQ(begin % grain, 0);
          next = end;
        }
        ASSERT_EQ(next, n) << threads << " threads, grain " << grain;
      }
  }
}

TEST(ParallelFor, SplitsTheSameWayEveryTime) {
  const Threads guard(4);
  const Ranges first = ranges_of(1000, 16);
  EXPECT_EQ(first.size(), 4u);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(ranges_of(1000, 16), first);
}

TEST(ParallelFor, NothingToDoCallsNothing) {
  EXPECT_TRUE(ranges_of(0, 8).empty());
}

TEST(ParallelFor, LittleWorkStaysOnTheCallingThread) {
  const Threads guard(4);
  int thread = -1;
  parallel_for(8, 8, [&](int64_t, int64_t) { thread = omp_get_num_threads(); });
  EXPECT_EQ(thread, 1);
}

TEST(ParallelTasks, RunsEachOnceWithAValidSlot) {
  for (const int threads : {1, 3}) {
    const Threads guard(threads);
    for (const int64_t n : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
      std::atomic<bool> slots_ok = true;
      parallel_tasks(n, [&](int64_t i, int slot) {
        ++runs[static_cast<size_t>(i)];
        if (slot < 0 || slot >= threads) slots_ok = false;
      });
      EXPECT_TRUE(slots_ok);
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

}  // namespace
}  // namespace capstan
