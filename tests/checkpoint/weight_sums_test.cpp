#include "checkpoint/weight_sums.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

using Sums = WeightSums::Sums;

// Of bytes from `first` to `last` of a tensor of 64.
WeightSums::Sum sum_of(int first, int last, int changed = -1) {
  WeightSums::Sum sum{.of = 64};
  std::vector<std::byte> bytes;
  for (int i = first; i < last; ++i) bytes.push_back(static_cast<std::byte>(i == changed ? 99 : i));
  sum.add(first, bytes);
  return sum;
}
Sums one_piece(const char* tensor, const char* piece, const WeightSums::Sum& sum) {
  return {{{tensor, piece}, sum}};
}

TEST(WeightSum, IsThatOfTheWholeHoweverRanksCutIt) {
  const auto whole = compare_sums({one_piece("w", "all", sum_of(0, 64))});
  EXPECT_FALSE(whole.difference);
  ASSERT_TRUE(whole.checksum);
  const auto halves = compare_sums(
      {one_piece("w", "first", sum_of(0, 31)), one_piece("w", "second", sum_of(31, 64))});
  EXPECT_EQ(halves.checksum, whole.checksum);
  const auto copies =
      compare_sums({one_piece("w", "all", sum_of(0, 64)), one_piece("w", "all", sum_of(0, 64))});
  EXPECT_EQ(copies.checksum, whole.checksum);
  EXPECT_NE(compare_sums({one_piece("w", "all", sum_of(0, 64, 20))}).checksum, whole.checksum);
  EXPECT_NE(compare_sums({one_piece("v", "all", sum_of(0, 64))}).checksum, whole.checksum);
  const auto overlapping = compare_sums(
      {one_piece("w", "first", sum_of(0, 40)), one_piece("w", "second", sum_of(31, 64))});
  EXPECT_FALSE(overlapping.difference);
  EXPECT_FALSE(overlapping.checksum) << "it would depend on the ranks";
}

TEST(WeightSum, TheRankThatAgreesWithTheFewestIsNamed) {
  const auto rank_of = [](const std::vector<int>& changed) {
    std::vector<Sums> by_rank;
    for (const int c : changed) {
      Sums sums = one_piece("w", "all", sum_of(0, 64, c));
      sums.merge(one_piece("a", "all", sum_of(0, 64)));
      by_rank.push_back(sums);
    }
    const auto found = compare_sums(by_rank).difference;
    if (!found) return std::pair(-1, -1);
    EXPECT_EQ(found->tensor, "w");
    return std::pair(static_cast<int>(found->rank), static_cast<int>(found->other));
  };
  EXPECT_EQ(rank_of({-1, -1, -1}), std::pair(-1, -1));
  EXPECT_EQ(rank_of({-1, 5, -1}), std::pair(1, 0));
  EXPECT_EQ(rank_of({5, -1, -1, -1}), std::pair(0, 1));
  EXPECT_EQ(rank_of({-1, 5}), std::pair(1, 0));
}

TEST(WeightSum, GoesOverAChannelAsText) {
  WeightSums sums;
  sums.add("model.layers.0.weight", "20 from 30", sum_of(3, 17));
  sums.add("model.layers.0.weight", "all", sum_of(0, 64));
  EXPECT_EQ(WeightSums::parse(sums.text()), sums.sums());
  EXPECT_TRUE(WeightSums::parse("").empty());
}

}  // namespace
}  // namespace capstan
