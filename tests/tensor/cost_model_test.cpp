#include "tensor/cost_model.h"

#include <gtest/gtest.h>

#include "tensor/queue.h"

namespace capstan {
namespace {

TEST(CostModels, TakeTheSlowerOfArithmeticAndMemory) {
  const CostModel m{
      .name = "m", .flops_per_second = 100, .bytes_per_second = 10, .seconds_per_call = 0.5};
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 300, .bytes = 10}), 3.5);
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 100, .bytes = 40}), 4.5);
}

TEST(CostModels, HaveRatesForEachKindOfOp) {
  CostModel m{.flops_per_second = 1, .bytes_per_second = 1};
  m.rates(OpKind::product) = {100, 10};
  m.rates(OpKind::elementwise) = {.bytes_per_second = 5};
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 300, .bytes = 10}), 3);
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 300, .bytes = 40}), 4);
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::elementwise, {.flops = 1e9, .bytes = 10}), 2)
      << "memory alone counts";
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::attention, {.flops = 7, .bytes = 2}), 7) << "of the machine";
}

TEST(CostModels, TheFactorIsOfCallsAsWell) {
  const CostModel m{
      .flops_per_second = 10, .bytes_per_second = 10, .seconds_per_call = 1, .factor = 1.5};
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 10, .bytes = 0}), 3);
}

TEST(SimQueue, ChargesEachOpAtTheRatesOfItsKind) {
  CostModel m{.flops_per_second = 1, .bytes_per_second = 1};
  m.rates(OpKind::product) = {10, 10};
  m.rates(OpKind::optimizer) = {.bytes_per_second = 2};
  Arena arena;
  Queue q(Device::sim, arena, m);
  (void)q.account({"linear", OpKind::product}, {.flops = 20, .bytes = 0});
  (void)q.account({"adamw", OpKind::optimizer}, {.flops = 100, .bytes = 6});
  EXPECT_DOUBLE_EQ(q.seconds(), 5);
}

TEST(CostModels, AddWhereAProcessorDoesOneAfterTheOther) {
  CostModel m{.flops_per_second = 1, .bytes_per_second = 1, .seconds_per_call = 100};
  m.rates(OpKind::product) = {10, 5, 0.5, true};
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 20, .bytes = 20}), 0.5 + 2 + 4);
  m.rates(OpKind::product)->adds = false;
  EXPECT_DOUBLE_EQ(m.seconds(OpKind::product, {.flops = 20, .bytes = 20}), 0.5 + 4);
}

}  // namespace
}  // namespace capstan
