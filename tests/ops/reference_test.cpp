// The measures by which ops are judged can fail.

#include "ops/reference.h"

#include "ops/attention_reference.h"

namespace capstan::test {
namespace {

TEST(Measures, ANanIsNotForgottenForWhatFollowsIt) {
  EXPECT_TRUE(std::isnan(error({NAN, 1}, {1, 1})));
  EXPECT_TRUE(std::isnan(largest_difference({NAN, 1}, {1, 1})));
  EXPECT_TRUE(std::isnan(largest_difference({1, 1}, {NAN, 1})));
  int calls = 0;
  const auto nan_at_first = [&](const Values& at) { return ++calls == 1 ? NAN : at[0]; };
  EXPECT_TRUE(std::isnan(gradient_error(nan_at_first, {0.5}, {1})));
}

TEST(Measures, OtherLengthsAreInfinitelyFar) {
  EXPECT_EQ(error({1, 2}, {1}), INFINITY);
  EXPECT_EQ(largest_difference({1, 2}, {1}), INFINITY);
  EXPECT_EQ(gradient_error([](const Values&) { return 0; }, {1, 2}, {1}), INFINITY);
}

// c[2,3] = a[2,2] b[2,3], by hand.
TEST(Measures, AProductOfMatricesStoredEitherWayIsTheSame) {
  const Values a = {1, 2, 3, 4}, a_turned = {1, 3, 2, 4};
  const Values b = {5, 6, 7, 8, 9, 10}, b_turned = {5, 8, 6, 9, 7, 10};
  const Values c = {21, 24, 27, 47, 54, 61};
  EXPECT_EQ(product_f64(2, 3, 2, a, false, b, false), c);
  EXPECT_EQ(product_f64(2, 3, 2, a_turned, true, b, false), c);
  EXPECT_EQ(product_f64(2, 3, 2, a, false, b_turned, true), c);
  EXPECT_EQ(product_f64(2, 3, 2, a_turned, true, b_turned, true), c);
}

}  // namespace
}  // namespace capstan::test
