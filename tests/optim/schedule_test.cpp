#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/message_of.h"

namespace capstan {
namespace {

using Decay = Schedule::Decay;
constexpr Decay kDecays[] = {Decay::constant, Decay::linear, Decay::cosine};

Schedule schedule(Decay decay) {
  return {.lr = 8, .min_lr = 2, .warmup_steps = 4, .total_steps = 12, .decay = decay};
}

TEST(Schedule, WarmsUpFromZeroInEqualSteps) {
  for (const Decay d : kDecays)
    for (int64_t step = 0; step < 4; ++step)
      EXPECT_DOUBLE_EQ(schedule(d).at(step), 2.0 * static_cast<double>(step)) << name_of(d);
}

TEST(Schedule, IsAtThePeakWhenTheWarmUpEnds) {
  for (const Decay d : kDecays) EXPECT_DOUBLE_EQ(schedule(d).at(4), 8) << name_of(d);
}

TEST(Schedule, WithoutWarmUpBeginsAtThePeak) {
  for (const Decay d : kDecays) {
    Schedule s = schedule(d);
    s.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(s.at(0), 8) << name_of(d);
  }
}

TEST(Schedule, DecaysAsItsNameSays) {
  EXPECT_DOUBLE_EQ(schedule(Decay::constant).at(8), 8);
  // Halfway, line and cosine meet; after a quarter, cos(pi/4) tells them apart.
  EXPECT_DOUBLE_EQ(schedule(Decay::linear).at(8), 5);
  EXPECT_DOUBLE_EQ(schedule(Decay::cosine).at(8), 5);
  EXPECT_DOUBLE_EQ(schedule(Decay::linear).at(6), 6.5);
  EXPECT_DOUBLE_EQ(schedule(Decay::cosine).at(6), 2 + 6 * 0.5 * (1 + std::sqrt(0.5)));
}

TEST(Schedule, StaysAtTheEndPastTheEnd) {
  for (const int64_t step : {12, 13, 1'000'000}) {
    EXPECT_DOUBLE_EQ(schedule(Decay::constant).at(step), 8);
    EXPECT_DOUBLE_EQ(schedule(Decay::linear).at(step), 2);
    EXPECT_DOUBLE_EQ(schedule(Decay::cosine).at(step), 2);
  }
}

TEST(Schedule, NeverRisesAfterTheWarmUp) {
  for (const Decay d : kDecays)
    for (int64_t step = 4; step < 20; ++step)
      EXPECT_LE(schedule(d).at(step + 1), schedule(d).at(step)) << name_of(d) << " step " << step;
}

TEST(Schedule, AWarmUpLongerThanTheRunIsNeverLeft) {
  for (const Decay d : kDecays) {
    Schedule s = schedule(d);
    s.warmup_steps = 100;
    EXPECT_DOUBLE_EQ(s.at(11), 0.88) << name_of(d);
    EXPECT_DOUBLE_EQ(s.at(99), 7.92) << name_of(d);
  }
}

TEST(Schedule, AWarmUpAsLongAsTheRunIsFollowedByTheEnd) {
  Schedule s = schedule(Decay::linear);
  s.warmup_steps = s.total_steps;
  EXPECT_DOUBLE_EQ(s.at(12), 8);
  EXPECT_DOUBLE_EQ(s.at(13), 2);
}

TEST(Schedule, NamesAreReadBack) {
  for (const Decay d : kDecays) EXPECT_EQ(value_named<Decay>(name_of(d)), d);
}

TEST(Schedule, AnUnknownNameListsTheKnownOnes) {
  EXPECT_EQ(message_of(Fault::usage, [] { parse_named<Decay>("schedule", "Cosine"); }),
            "schedule: 'Cosine' is not one of constant, linear, cosine");
}

}  // namespace
}  // namespace capstan
