#include "plan/track_record.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace capstan {
namespace {

PlannedRun took(double ratio, double predicted = 2) {
  return {.device = "here",
          .calibration = "here of 2026-08-01",
          .precision = "bf16-mixed",
          .predicted_step_seconds = predicted,
          .measured_step_seconds = ratio * predicted,
          .predicted_bytes = 1000,
          .measured_bytes = 1000};
}

std::vector<PlannedRun> took(std::initializer_list<double> ratios) {
  std::vector<PlannedRun> runs;
  // Ratios do not depend on how long the steps are.
  for (const double ratio : ratios)
    runs.push_back(took(ratio, 1 + static_cast<double>(runs.size())));
  return runs;
}

TEST(TrackRecords, AreOfTheDeviceAlone) {
  EXPECT_FALSE(record_of({}, {.device = "here"}));
  const auto history = took({1.5, 0.5});
  EXPECT_FALSE(record_of(history, {.device = "there"}));
  EXPECT_EQ(record_of(history, {.device = "here"})->runs, 2);
}

TEST(TrackRecords, HaveMediansAndExtremes) {
  const auto odd = record_of(took({1.5, 0.5, 1.25}), {.device = "here"});
  EXPECT_EQ(odd->timed, 3);
  EXPECT_DOUBLE_EQ(odd->lowest_ratio, 0.5);
  EXPECT_DOUBLE_EQ(odd->median_ratio, 1.25);
  EXPECT_DOUBLE_EQ(odd->highest_ratio, 1.5);
  EXPECT_DOUBLE_EQ(odd->median_error, 0.5);
  EXPECT_DOUBLE_EQ(odd->worst_error, 0.5);
  const auto even = record_of(took({1.5, 0.75, 1.25, 1}), {.device = "here"});
  EXPECT_DOUBLE_EQ(even->median_ratio, 1.125);
  EXPECT_DOUBLE_EQ(even->median_error, 0.25);
  EXPECT_DOUBLE_EQ(even->worst_error, 0.5);
}

TEST(TrackRecords, CanBeOfOnePrecisionAndCalibration) {
  auto history = took({1, 2, 3});
  history[1].precision = "32-true";
  history[2].calibration = "here of 2026-08-05";
  const auto one = record_of(history, {.device = "here", .precision = "32-true"});
  EXPECT_EQ(one->runs, 1);
  EXPECT_DOUBLE_EQ(one->median_ratio, 2);
  // What was planned of memory does not depend on the calibration.
  history[1].measured_bytes = 1250;
  const auto later = record_of(history, {.device = "here", .calibration = "here of 2026-08-05"});
  EXPECT_EQ(later->runs, 3);
  EXPECT_EQ(later->timed, 1);
  EXPECT_DOUBLE_EQ(later->median_ratio, 3);
  EXPECT_DOUBLE_EQ(later->memory_worst_error, 0.25);
}

// Ranks wait for each other, however many they are.
TEST(TrackRecords, CanBeOfOneRankOrOfSeveral) {
  auto history = took({1, 2, 3});
  history[1].ranks = 2;
  history[2].ranks = 8;
  EXPECT_EQ(record_of(history, {.device = "here", .ranks = 1})->runs, 1);
  EXPECT_DOUBLE_EQ(record_of(history, {.device = "here", .ranks = 4})->median_ratio, 2.5);
  EXPECT_EQ(record_of(history, {.device = "here"})->runs, 3);
}

TEST(TrackRecords, TakeOnlyTimesThatAreKnown) {
  auto history = took({1.5, 0, 0.5});  // the second one was not measured
  history[2].predicted_step_seconds = 0;
  history[2].measured_bytes = 750;
  const auto record = record_of(history, {.device = "here"});
  EXPECT_EQ(record->runs, 3);
  EXPECT_EQ(record->timed, 1);
  EXPECT_DOUBLE_EQ(record->lowest_ratio, 1.5);
  EXPECT_DOUBLE_EQ(record->highest_ratio, 1.5);
  EXPECT_DOUBLE_EQ(record->memory_worst_error, 0.25);
  history.erase(history.begin());
  EXPECT_EQ(record_of(history, {.device = "here"})->timed, 0);
  history[1].predicted_bytes = 0;  // unknown is not wrong
  EXPECT_EQ(record_of(history, {.device = "here"})->memory_worst_error, 0);
}

TEST(TrackRecords, CorrectOnlyIfThereAreEnough) {
  EXPECT_EQ(correction(std::nullopt), 1);
  EXPECT_EQ(correction(record_of(took({2, 3}), {.device = "here"})), 1);
  EXPECT_DOUBLE_EQ(correction(record_of(took({2, 3, 1.5}), {.device = "here"})), 2);
  // Runs whose times are not known do not count.
  EXPECT_EQ(correction(record_of(took({2, 3, 0}), {.device = "here"})), 1);
}

std::string line(std::initializer_list<double> ratios) {
  return history_line(*record_of(took(ratios), {.device = "here"}));
}

TEST(TrackRecords, AreToldInALine) {
  EXPECT_EQ(line({0.97, 1.06, 1.032}),
            "  here, 3 runs took 0.97 to 1.06 of the predicted time, median error 3.2%");
  EXPECT_EQ(line({1.06}), "  here, one run took 1.06 of the predicted time");
  EXPECT_EQ(line({2, 2}), "  here, 2 runs took 2.00 of the predicted time, median error 100%");
  EXPECT_EQ(line({0, 0}), "  here, the time of 2 runs was not predicted");
  auto off = took({1});
  off[0].measured_bytes = 1004;
  EXPECT_EQ(history_line(*record_of(off, {.device = "here"})),
            "  here, one run took 1.00 of the predicted time\n"
            "  their memory was up to 0.4% off the plan");
  const TrackRecord longest{.runs = 10'000,
                            .timed = 10'000,
                            .lowest_ratio = 0.01,
                            .median_ratio = 1,
                            .highest_ratio = 999.9,
                            .median_error = 9.99};
  EXPECT_LE(history_line(longest).size(), 80) << history_line(longest);
}

}  // namespace
}  // namespace capstan
