#include "plan/offers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "planned_task.h"

namespace capstan::test {
namespace {

constexpr const char* kPrices =
    "date: 2026-08-03\norigin: a test\nbetween_instances: {gigabits: 3200}\ninstances:\n"
    "  a10: {1: 1}\n"
    "  a100-80-sxm: {8: 20}\n"
    "  h100-sxm: {1: 4, 8: 31}\n"
    "  nothing-else-knows: {1: 0.1}\n";

PlannedTask task(int64_t steps = 10'000) {
  PlannedTask t = task_of_1b();
  t.steps = steps;
  return t;
}

std::vector<RentedRun> runs(const PlannedTask& t, const Wish& wish) {
  return rented_runs(t, {gpu("a10"), gpu("a100-80-sxm"), gpu("h100-sxm"), gpu("h200")},
                     parse_prices(kPrices, "prices"), wish);
}

TEST(Offers, AreWhatIsRentedAndWhatTheRunFitsOn) {
  std::vector<std::string> names;
  for (const RentedRun& r : runs(task(), {})) {
    EXPECT_TRUE(r.run.fits);
    EXPECT_FALSE(r.meets) << "nothing was wished";
    names.push_back(std::to_string(r.machines.count) + " × " + std::to_string(r.machines.devices) +
                    " " + r.gpu.id);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{
                       "1 × 1 h100-sxm", "1 × 8 a100-80-sxm", "1 × 8 h100-sxm", "2 × 8 a100-80-sxm",
                       "2 × 8 h100-sxm", "4 × 8 a100-80-sxm", "4 × 8 h100-sxm"}))
      << "24 GB are too few for 1.3 B parameters with 16 bytes each, h200 has no price";
}

// By the prices, unless the user knows better.
TEST(Offers, OfSeveralInstancesAreAsFastAsWhatJoinsThem) {
  const auto step_of_two = [](const char* between, const Stated& stated) {
    const std::string prices =
        fmt::format("date: d\norigin: a test\n{}instances:\n  h100-sxm: {{8: 31}}\n", between);
    for (const RentedRun& r :
         rented_runs(task(), {gpu("h100-sxm")}, parse_prices(prices, "prices"), {}, stated))
      if (r.machines.count == 2) return r.run.step->seconds;
    return 0.0;
  };
  const char* const slow = "between_instances: {gigabits: 25}\n";
  const double as_priced = step_of_two(slow, {});
  EXPECT_GT(as_priced, 2 * step_of_two("between_instances: {gigabits: 3200}\n", {}));
  EXPECT_EQ(step_of_two("between_instances: {gigabits: 3200}\n", {}),
            step_of_two(slow, {.gpu = "h100-sxm", .across = 50e9}));
  EXPECT_EQ(step_of_two(slow, {.gpu = "h200", .across = 50e9}), as_priced) << "of another GPU";
  EXPECT_EQ(step_of_two("", {}), 0) << "nothing is known of what joins them";
}

// On the GPU that was named; of others nothing is known but their data sheets.
TEST(Offers, HaveWhatTheUserStated) {
  const Stated stated{.gpu = "h100-sxm", .bytes = int64_t{1} << 30};
  const auto all = rented_runs(task(), {gpu("a100-80-sxm"), gpu("h100-sxm")},
                               parse_prices(kPrices, "prices"), {}, stated);
  EXPECT_FALSE(all.empty());
  for (const RentedRun& r : all) EXPECT_EQ(r.gpu.id, "a100-80-sxm");
}

// Each machine has the batch that a run there takes: the largest without more recomputation.
TEST(Offers, ChooseTheMicroBatchIfTheRecipeLeavesItOpen) {
  PlannedTask open = task();
  open.recipe.micro_batch_size.automatic = true;
  open.options_with = [&](const Recipe& recipe) {
    TrainOptions o = open.options;
    o.limits.documents = recipe.micro_batch_size.size;
    o.limits.tokens = o.limits.documents * o.limits.longest;
    return o;
  };
  const auto all = runs(open, {});
  ASSERT_FALSE(all.empty());
  std::set<int64_t> batches;
  for (const RentedRun& r : all) {
    batches.insert(r.run.options.limits.documents);
    EXPECT_LE(r.run.options.limits.documents * r.machines.ranks(), 32);
  }
  EXPECT_GT(batches.size(), 1U) << "more ranks have fewer samples each";
  EXPECT_GT(*batches.rbegin(), 1);
}

TEST(Offers, CostTheirHours) {
  for (const RentedRun& r : runs(task(), {})) {
    const double hours = r.seconds / 3600;
    const double price = r.gpu.id == "a100-80-sxm" ? 20 : r.machines.devices == 1 ? 4 : 31;
    EXPECT_EQ(r.seconds, 10'000 * r.run.step->seconds);
    // Paid by the second, rounded up.
    EXPECT_NEAR(r.dollars.expected, hours * price * r.machines.count,
                price * r.machines.count / 3600 + 1e-9);
    EXPECT_GE(r.dollars.expected, hours * price * r.machines.count - 1e-9);
    EXPECT_LT(r.dollars.low, r.dollars.expected);
    EXPECT_GT(r.dollars.high, r.dollars.expected);
    EXPECT_GT(r.longest_seconds, r.seconds);
    EXPECT_EQ(r.instances.gpus, r.machines.devices);
  }
}

TEST(Offers, OnTheFrontAreThoseThatNothingBeats) {
  const auto all = runs(task(), {});
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.dollars.expected < b.dollars.expected;
  }));
  int front = 0;
  for (const RentedRun& r : all) {
    const bool beaten = std::any_of(all.begin(), all.end(), [&](const RentedRun& o) {
      return o.dollars.expected <= r.dollars.expected && o.seconds <= r.seconds &&
             (o.dollars.expected < r.dollars.expected || o.seconds < r.seconds);
    });
    EXPECT_EQ(r.front, !beaten) << r.machines.count << " × " << r.gpu.id;
    front += r.front ? 1 : 0;
  }
  EXPECT_GT(front, 1);
}

TEST(Offers, MeetTheWishEvenIfTheyTakeTheLongest) {
  const auto all = runs(task(), {});
  const RentedRun& some = all[all.size() / 2];
  for (const Wish& wish : {Wish{.seconds = some.longest_seconds, .dollars = {}},
                           Wish{.seconds = {}, .dollars = some.dollars.high},
                           Wish{.seconds = some.longest_seconds, .dollars = some.dollars.high}}) {
    const auto wished = runs(task(), wish);
    const RentedRun* first = nullptr;
    int meeting = 0;
    for (const RentedRun& r : wished) {
      const bool in_time = !wish.seconds || r.longest_seconds <= *wish.seconds;
      const bool paid = !wish.dollars || r.dollars.high <= *wish.dollars;
      ASSERT_TRUE(r.meets);
      EXPECT_EQ(*r.meets, in_time && paid);
      meeting += *r.meets ? 1 : 0;
      if (*r.meets && first == nullptr) first = &r;
    }
    EXPECT_GT(meeting, 0) << "that machine itself does";
    EXPECT_EQ(that_meets(wished), first);
  }
}

TEST(Offers, NearestIsTheCheapestInTimeOrElseTheFastest) {
  const auto none = [](const Wish& wish) {
    const auto all = runs(task(), wish);
    EXPECT_EQ(that_meets(all), nullptr);
    const RentedRun* nearest = nearest_to(wish, all);
    return std::pair(nearest - all.data(), all);
  };
  EXPECT_EQ(none({.seconds = {}, .dollars = 0.01}).first, 0) << "the cheapest";
  const auto [fastest, all] = none({.seconds = 1, .dollars = {}});
  for (const RentedRun& r : all) EXPECT_GE(r.seconds, all[static_cast<size_t>(fastest)].seconds);
  EXPECT_EQ(nearest_to({}, {}), nullptr);
}

TEST(Offers, HaveNoMoreRanksThanSamples) {
  PlannedTask few = task();
  few.recipe.global_batch_size = 8;
  for (const RentedRun& r : runs(few, {})) EXPECT_LE(r.machines.ranks(), 8);
}

TEST(Offers, AreInThePrecisionOfTheirGpu) {
  PlannedTask t = task_of_1b();
  t.steps = 10;
  const Prices prices = parse_prices(
      "date: 2026-08-03\norigin: a test\ninstances:\n  v100-32: {1: 1}\n  h100-sxm: {1: 4}\n",
      "prices");
  const auto all = rented_runs(t, {gpu("v100-32"), gpu("h100-sxm")}, prices, {});
  ASSERT_EQ(all.size(), 2U);
  for (const RentedRun& r : all)
    EXPECT_EQ(r.run.options.precision,
              r.gpu.id == "v100-32" ? Precision::f16_mixed : Precision::bf16_mixed);
}

TEST(Offers, AreNoneWithoutPrices) {
  EXPECT_TRUE(rented_runs(task(), {gpu("h100-sxm")}, {}, {}).empty());
}

TEST(Uncertainties, AreWiderTheLessIsKnown) {
  Calibration measured;
  measured.device = Device::cuda;
  Calibration sheet = measured, cpu = measured;
  sheet.from_data_sheet = true;
  cpu.device = Device::cpu;
  const auto width = [](const Uncertainty& u) {
    EXPECT_LT(u.low, 1);
    EXPECT_GT(u.high, 1);
    EXPECT_FALSE(u.origin.empty());
    return u.high - u.low;
  };
  EXPECT_LT(width(uncertainty_of(measured, 1, 1)), width(uncertainty_of(sheet, 1, 1)));
  EXPECT_LT(width(uncertainty_of(measured, 1, 1)), width(uncertainty_of(cpu, 1, 1)));
  EXPECT_LT(width(uncertainty_of(sheet, 1, 1)), width(uncertainty_of(sheet, 1, 2)));
  // The card was measured, but not what connects eight of them.
  EXPECT_EQ(width(uncertainty_of(measured, 8, 1)), width(uncertainty_of(sheet, 8, 1)));
  measured.networks[8] = {};
  EXPECT_EQ(width(uncertainty_of(measured, 8, 1)), width(uncertainty_of(measured, 1, 1)));
  EXPECT_EQ(width(uncertainty_of(measured, 8, 2)), width(uncertainty_of(sheet, 8, 2)));
}

TEST(Uncertainties, AreThoseOfEnoughRunsHere) {
  Calibration measured;
  measured.device = Device::cuda;
  TrackRecord record;
  record.timed = kEnoughToNarrow;
  record.lowest_ratio = 1.02;
  record.highest_ratio = 1.5;
  const Uncertainty known = uncertainty_of(measured, 1, 1, record);
  EXPECT_EQ(known.low, 1) << "the prediction itself is within";
  EXPECT_EQ(known.high, 1.5);
  record.timed = kEnoughToCorrect;
  const Uncertainty few = uncertainty_of(measured, 1, 1, record),
                    none = uncertainty_of(measured, 1, 1);
  EXPECT_EQ(few.low, none.low) << "few runs widen the range and do not narrow it";
  EXPECT_EQ(few.high, 1.5);
  EXPECT_LT(uncertainty_of(measured, 8, 1, record).high, 1.5) << "the record is of one GPU";
  record.timed = kEnoughToCorrect - 1;
  EXPECT_EQ(uncertainty_of(measured, 1, 1, record).high, uncertainty_of(measured, 1, 1).high);
}

// A factor moves the prediction; it does not make runs differ less from each other.
TEST(Uncertainties, OfCorrectedTimesHoldTheRunsThatCorrectedThem) {
  Calibration measured;
  measured.device = Device::cuda;
  TrackRecord record;
  record.timed = kEnoughToCorrect;
  record.lowest_ratio = 0.8;
  record.median_ratio = 1.6;
  record.highest_ratio = 3.2;
  const double factor = correction(record);
  for (const int timed : {kEnoughToCorrect, kEnoughToNarrow, 100}) {
    record.timed = timed;
    const Uncertainty u = uncertainty_of(measured, 1, 1, record, factor);
    EXPECT_DOUBLE_EQ(u.low, 0.5);
    EXPECT_DOUBLE_EQ(u.high, 2);
  }
  // Three that agree by chance are no better known than what was calibrated.
  record.timed = kEnoughToCorrect;
  record.lowest_ratio = 1.59;
  record.highest_ratio = 1.61;
  const Uncertainty few = uncertainty_of(measured, 1, 1, record, factor),
                    none = uncertainty_of(measured, 1, 1);
  EXPECT_EQ(few.low, none.low);
  EXPECT_EQ(few.high, none.high);
  record.timed = kEnoughToNarrow;
  const Uncertainty many = uncertainty_of(measured, 1, 1, record, factor);
  EXPECT_GT(many.low, none.low);
  EXPECT_LT(many.high, none.high);
}

}  // namespace
}  // namespace capstan::test
