#include "plan/call_cost.h"

#include <gtest/gtest.h>

#include <vector>

namespace capstan {
namespace {

const std::vector<CallTotal> kWork = {{.calls = 10, .flops = 1e9, .bytes = 1e6},
                                      {.calls = 100, .flops = 2e9, .bytes = 9e6},
                                      {.calls = 40, .flops = 1e8, .bytes = 5e7},
                                      {.calls = 7, .flops = 5e10, .bytes = 4e7},
                                      {.calls = 300, .flops = 1e7, .bytes = 1e5}};

std::vector<CallTotal> timed(const CallCost& cost) {
  std::vector<CallTotal> all = kWork;
  for (CallTotal& t : all) t.seconds = cost.of(t);
  return all;
}

TEST(CallCosts, AreFoundAgain) {
  const CallCost cost{2e-6, 1e-11, 3e-10};
  const CallCost found = fit_call_cost(timed(cost));
  EXPECT_NEAR(found.per_call / cost.per_call, 1, 1e-6);
  EXPECT_NEAR(found.per_flop / cost.per_flop, 1, 1e-6);
  EXPECT_NEAR(found.per_byte / cost.per_byte, 1, 1e-6);
}

TEST(CallCosts, AreNeverNegative) {
  // More bytes took less time: no cost of bytes explains it.
  std::vector<CallTotal> all = timed({1e-6, 1e-11, 0});
  for (CallTotal& t : all) t.seconds -= 1e-13 * t.bytes;
  const CallCost found = fit_call_cost(all);
  EXPECT_EQ(found.per_byte, 0);
  EXPECT_GT(found.per_flop, 0);
  for (const CallTotal& t : all) EXPECT_NEAR(found.of(t) / t.seconds, 1, 0.3);
}

TEST(CallCosts, OfWhatDoesNothingOfAKindHaveNoneOfIt) {
  std::vector<CallTotal> all = timed({1e-6, 0, 2e-10});
  for (CallTotal& t : all) t.flops = 0;  // a copy
  const CallCost found = fit_call_cost(all);
  EXPECT_EQ(found.per_flop, 0);
  EXPECT_NEAR(found.per_byte, 2e-10, 1e-15);
  EXPECT_EQ(fit_call_cost({}), CallCost());
  EXPECT_EQ(fit_call_cost(kWork), CallCost()) << "nothing took any time";
}

}  // namespace
}  // namespace capstan
