#include "base/rng.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

namespace capstan {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers for philox4x32 with ten rounds, as published with Random123.
TEST(Philox, GivesTheKnownAnswers) {
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, IsAFunctionOfKeyAndIndex) {
  const RngKey key{.seed = 7, .step = 3, .sample = 11, .site = site::dropout};
  const Rng a(key), b(key);
  EXPECT_EQ(a.draws(123456789), b.draws(123456789));
  EXPECT_EQ(a.word(6), a.draws(1)[2]);
  const Rng copy = a;
  EXPECT_EQ(copy.draws(5), a.draws(5));
}

TEST(Rng, WordsInBulkAreTheWordsOneByOne) {
  const Rng rng({.seed = 7, .step = 1, .sample = 2, .site = 3});
  // Across the carry into the counter's upper half, too.
  for (const uint64_t first : {uint64_t{0}, uint64_t{5}, (uint64_t{1} << 32) - 3}) {
    uint32_t words[96];
    rng.words(first, words);
    for (uint64_t i = 0; i < 96; ++i) EXPECT_EQ(words[i], rng.word(4 * first + i)) << i;
  }
}

// Recorded once: a change here changes the draws of every run, and runs that resume.
TEST(Rng, KeepsItsStream) {
  const Rng rng({.seed = 1, .step = 2, .sample = 3, .site = 4});
  EXPECT_EQ(rng.draws(0), (Words{0x64e94b00, 0x7670bb20, 0x804ae2f1, 0x1d64c8d2}));
}

TEST(Rng, EveryFieldOfTheKeyMatters) {
  std::vector<RngKey> keys = {{}};
  for (const uint64_t v : {uint64_t{1}, uint64_t{2}, uint64_t{1} << 32, uint64_t{1} << 63}) {
    keys.push_back({.seed = v});
    keys.push_back({.step = v});
    keys.push_back({.sample = v});
  }
  for (const uint32_t v : {1u, 2u, site::init, site::init + 1, site::tasks})
    keys.push_back({.site = v});
  std::set<Words> streams;
  for (const RngKey& key : keys) streams.insert(Rng(key).draws(0));
  EXPECT_EQ(streams.size(), keys.size());
}

TEST(Rng, HalvesAreThoseOfTheWords) {
  const Rng rng(RngKey{.seed = 3});
  for (uint64_t i = 0; i < 100; ++i)
    EXPECT_EQ(rng.half(2 * i) | rng.half(2 * i + 1) << 16, rng.word(i));
}

TEST(Rng, HighBitsOfTheIndexMatter) {
  const Rng rng(RngKey{});
  EXPECT_NE(rng.draws(0), rng.draws(uint64_t{1} << 32));
}

// Correlation of two streams of n independent uniform draws has standard deviation 1 / sqrt(n).
double correlation(const Rng& a, const Rng& b, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i)
    sum +=
        (a.uniform(static_cast<uint64_t>(i)) - 0.5) * (b.uniform(static_cast<uint64_t>(i)) - 0.5);
  return 12 * sum / n;
}

TEST(Rng, StreamsOfNeighbouringKeysAreIndependent) {
  constexpr int n = 20000;
  const double five_sigma = 5 / std::sqrt(static_cast<double>(n));
  const Rng base(RngKey{.seed = 42});
  EXPECT_NEAR(correlation(base, base, n), 1, 0.05);  // the measure itself works
  EXPECT_LT(std::abs(correlation(base, Rng({.seed = 43}), n)), five_sigma);
  EXPECT_LT(std::abs(correlation(base, Rng({.seed = 42, .step = 1}), n)), five_sigma);
  EXPECT_LT(std::abs(correlation(base, Rng({.seed = 42, .sample = 1}), n)), five_sigma);
  EXPECT_LT(std::abs(correlation(base, Rng({.seed = 42, .site = 1}), n)), five_sigma);
}

TEST(Rng, UniformStaysBelowOneAndHasTheRightMean) {
  const Rng rng({.seed = 5});
  constexpr int n = 100000;
  double sum = 0;
  for (int i = 0; i < n; ++i) {
    const float u = rng.uniform(static_cast<uint64_t>(i));
    ASSERT_GE(u, 0.0f);
    ASSERT_LT(u, 1.0f);
    sum += u;
  }
  EXPECT_NEAR(sum / n, 0.5, 5 / std::sqrt(12.0 * n));
}

TEST(Rng, BelowStaysBelow) {
  const Rng rng({.seed = 9});
  const uint64_t huge = (uint64_t{1} << 63) + 12345;
  for (uint64_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(rng.below(i, 1), 0u);
    ASSERT_LT(rng.below(i, 3), 3u);
    ASSERT_LT(rng.below(i, huge), huge);
  }
}

TEST(Rng, BelowIsUniform) {
  for (const uint64_t n : {uint64_t{2}, uint64_t{7}, uint64_t{10}, uint64_t{64}, uint64_t{1000}}) {
    const Rng rng({.seed = 17, .site = site::shuffle});
    const uint64_t draws = 200 * n;
    std::vector<double> count(n, 0.0);
    for (uint64_t i = 0; i < draws; ++i) count[rng.below(i, n)] += 1;
    const double expected = static_cast<double>(draws) / static_cast<double>(n);
    double chi2 = 0;
    for (const double c : count) chi2 += (c - expected) * (c - expected) / expected;
    // Chi-squared with k degrees of freedom has mean k and variance 2k.
    const auto k = static_cast<double>(n - 1);
    EXPECT_LT(chi2, k + 5 * std::sqrt(2 * k) + 5) << "n=" << n;
  }
}

}  // namespace
}  // namespace capstan
