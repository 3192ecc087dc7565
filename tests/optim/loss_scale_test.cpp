#include "optim/loss_scale.h"

#include <gtest/gtest.h>

namespace capstan {
namespace {

TEST(LossScale, IsOneWhereNothingNeedsIt) {
  LossScale scale;
  EXPECT_FALSE(scale.moves());
  for (int i = 0; i < 3000; ++i) scale.count_good_step();
  EXPECT_FALSE(scale.lower());
  scale.restore({64, 3});
  EXPECT_EQ(scale.value(), 1);
}

TEST(LossScale, IsHalvedByEachOverflowDownToOne) {
  LossScale scale({.start = 4, .interval = 10});
  EXPECT_TRUE(scale.lower());
  EXPECT_EQ(scale.value(), 2);
  EXPECT_TRUE(scale.lower());
  EXPECT_EQ(scale.value(), 1);
  EXPECT_FALSE(scale.lower()) << "gradients overflow without it";
  EXPECT_EQ(scale.value(), 1);
}

TEST(LossScale, IsDoubledAfterGoodStepsInARow) {
  LossScale scale({.start = 8, .interval = 3});
  scale.count_good_step();
  scale.count_good_step();
  EXPECT_TRUE(scale.lower());  // counts anew
  for (const double expected : {4, 4, 8, 8, 8, 16}) {
    scale.count_good_step();
    EXPECT_EQ(scale.value(), expected);
  }
}

TEST(LossScale, StaysFinite) {
  LossScale scale({.start = 0x1p126, .interval = 1});
  for (int i = 0; i < 9; ++i) scale.count_good_step();
  EXPECT_EQ(scale.value(), 0x1p127);
}

TEST(LossScale, GoesOnWhereItsStateWasKept) {
  LossScale scale({.start = 8, .interval = 3});
  scale.count_good_step();
  scale.count_good_step();
  LossScale resumed({.start = 1024, .interval = 3});
  resumed.restore(scale.state());
  EXPECT_EQ(resumed.state(), scale.state());
  resumed.count_good_step();
  EXPECT_EQ(resumed.value(), 16);
}

}  // namespace
}  // namespace capstan
