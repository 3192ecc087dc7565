#include "base/place_sum.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace capstan {
namespace {

std::vector<std::byte> random_bytes(size_t n) {
  const Rng rng({.seed = 7});
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>(rng.below(i, 256));
  return bytes;
}

TEST(PlaceSum, OfPartsAddUpHoweverTheWholeIsCut) {
  const auto bytes = random_bytes(100'003);
  const std::span<const std::byte> all(bytes);
  const uint64_t whole = place_sum(all, 0);
  const Rng rng({.seed = 8});
  for (uint64_t round = 0; round < 20; ++round) {
    uint64_t sum = 0, draw = 1000 * round;
    for (size_t at = 0; at < bytes.size();) {
      const size_t n =
          std::min(bytes.size() - at, size_t{1} + rng.below(draw++, round < 10 ? 40 : 30'000));
      sum += place_sum(all.subspan(at, n), static_cast<int64_t>(at));
      at += n;
    }
    EXPECT_EQ(sum, whole) << "round " << round;
  }
}

TEST(PlaceSum, FindsAnyChangeOfAByteAndAnyExchange) {
  auto bytes = random_bytes(40'000);
  const uint64_t whole = place_sum(bytes, 0);
  const Rng rng({.seed = 9});
  for (uint64_t round = 0; round < 2000; ++round) {
    const auto at = rng.below(3 * round, bytes.size()),
               other = rng.below(3 * round + 1, bytes.size());
    const std::byte before = bytes[at];
    bytes[at] ^= static_cast<std::byte>(1 + rng.below(3 * round + 2, 255));
    EXPECT_NE(place_sum(bytes, 0), whole) << at;
    bytes[at] = before;
    if (bytes[at] == bytes[other]) continue;
    std::swap(bytes[at], bytes[other]);
    EXPECT_NE(place_sum(bytes, 0), whole) << at << " and " << other;
    std::swap(bytes[at], bytes[other]);
  }
  EXPECT_NE(place_sum(bytes, 8), whole) << "elsewhere in the whole";
  EXPECT_EQ(place_sum({}, 5), 0u);
}

TEST(PlaceSum, DoesNotDependOnThreads) {
  const auto bytes = random_bytes(5 << 20);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const uint64_t one = place_sum(bytes, 3);
  omp_set_num_threads(3);
  EXPECT_EQ(place_sum(bytes, 3), one);
  omp_set_num_threads(threads);
}

}  // namespace
}  // namespace capstan
