#include "data/dataset/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "data/errors.h"

namespace capstan {
namespace {

using Ids = std::vector<int64_t>;

Ids ids_of(Sampler& sampler, int64_t step) {
  const auto ids = sampler.ids(step);
  return {ids.begin(), ids.end()};
}

// The ids of the first `epochs` epochs, step after step.
Ids sequence(Sampler sampler, int64_t epochs) {
  Ids all;
  for (int64_t step = 0; step < epochs * sampler.steps_per_epoch(); ++step)
    for (const int64_t id : sampler.ids(step)) all.push_back(id);
  return all;
}

TEST(Sampler, OrderIsTheSameForEveryGlobalBatch) {
  const Ids expected = sequence(Sampler(101, 1, 1337), 3);
  for (const int64_t batch : {2, 7, 16, 100, 101, 102, 5000})
    EXPECT_EQ(sequence(Sampler(101, batch, 1337), 3), expected) << "global batch " << batch;
}

TEST(Sampler, EveryEpochTakesEverySampleOnce) {
  for (const int64_t samples : {1, 2, 31, 32, 33}) {
    Ids all(static_cast<size_t>(samples));
    std::iota(all.begin(), all.end(), 0);
    const Ids order = sequence(Sampler(samples, 8, 5), 4);
    ASSERT_EQ(order.size(), 4 * all.size());
    for (auto epoch = order.begin(); epoch != order.end(); epoch += samples)
      EXPECT_TRUE(std::is_permutation(epoch, epoch + samples, all.begin())) << samples;
  }
}

TEST(Sampler, EpochsAndSeedsGiveDifferentOrders) {
  const Ids a = sequence(Sampler(50, 50, 1), 2), b = sequence(Sampler(50, 50, 2), 1);
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + 50, a.begin() + 50));
  EXPECT_FALSE(std::equal(a.begin(), a.begin() + 50, b.begin()));
}

TEST(Sampler, AnyStepCanBeAskedForDirectly) {
  Sampler in_order(23, 5, 9);
  std::vector<Ids> steps;
  for (int64_t step = 0; step < 20; ++step) steps.push_back(ids_of(in_order, step));
  Sampler jumping(23, 5, 9);
  for (const int64_t step : {17, 3, 19, 0, 18, 4, 5, 4})
    EXPECT_EQ(ids_of(jumping, step), steps[static_cast<size_t>(step)]) << "step " << step;
}

TEST(Sampler, TheLastBatchOfAnEpochHoldsWhatIsLeft) {
  Sampler sampler(10, 4, 1);
  EXPECT_EQ(sampler.steps_per_epoch(), 3);
  const std::vector<size_t> sizes = {4, 4, 2, 4, 4, 2};
  for (size_t step = 0; step < sizes.size(); ++step)
    EXPECT_EQ(sampler.ids(static_cast<int64_t>(step)).size(), sizes[step]) << "step " << step;
  EXPECT_EQ(sampler.epoch_of(2), 0);
  EXPECT_EQ(sampler.epoch_of(3), 1);
  EXPECT_EQ(Sampler(8, 4, 1).steps_per_epoch(), 2);
}

TEST(Sampler, UnshuffledIsInOrder) {
  Sampler sampler(5, 2, 1, false);
  EXPECT_EQ(sequence(sampler, 2), (Ids{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}));
}

TEST(Sampler, TheOrderNeverChanges) {
  // Runs are resumed years later: these numbers are part of what a checkpoint means.
  EXPECT_EQ(sequence(Sampler(8, 8, 1337), 2),
            (Ids{0, 3, 4, 5, 1, 7, 6, 2, 0, 1, 7, 2, 6, 4, 3, 5}));
}

TEST(Permute, EveryPlaceIsEquallyLikely) {
  constexpr int kTrials = 6000, kSize = 6;
  std::array<std::array<int, kSize>, kSize> seen{};
  Ids order(kSize);
  for (uint64_t seed = 0; seed < kTrials; ++seed) {
    permute(order, Rng({.seed = seed, .site = site::shuffle}));
    for (size_t place = 0; place < kSize; ++place) ++seen[place][static_cast<size_t>(order[place])];
  }
  // Binomial with mean 1000 and deviation 29: five deviations.
  for (const auto& row : seen)
    for (const int times : row) EXPECT_NEAR(times, kTrials / kSize, 145);
}

TEST(Sampler, RefusesAnEmptySet) {
  expect_error(Fault::file, {"no samples"}, [] { Sampler(0, 4, 1); });
  expect_error(Fault::usage, {"global batch", "0"}, [] { Sampler(4, 0, 1); });
}

}  // namespace
}  // namespace capstan
