#include "tensor/cost_model.h"

#include <gtest/gtest.h>

#include "tensor/queue.h"

namespace capstan {
namespace {

TEST(CostModels, TakeTheSlowerOfArithmeticAndMemory) {
  const CostModel m{
      .name = "m", .flops_per_second = 100, .bytes_per_second = 10, .seconds_per_call = 0.5};
  EXPECT_DOUBLE_EQ(m.seconds("linear", {.flops = 300, .bytes = 10}), 3.5);
  EXPECT_DOUBLE_EQ(m.seconds("linear", {.flops = 100, .bytes = 40}), 4.5);
}

TEST(CostModels, HaveRatesForEachKindOfOp) {
  CostModel m{.flops_per_second = 1, .bytes_per_second = 1};
  m.rates(OpKind::product) = {100, 10};
  m.rates(OpKind::elementwise) = {.bytes_per_second = 5};
  EXPECT_DOUBLE_EQ(m.seconds("linear_backward_weight", {.flops = 300, .bytes = 10}), 3);
  EXPECT_DOUBLE_EQ(m.seconds("linear", {.flops = 300, .bytes = 40}), 4);
  EXPECT_DOUBLE_EQ(m.seconds("swiglu", {.flops = 1e9, .bytes = 10}), 2) << "memory alone counts";
  EXPECT_DOUBLE_EQ(m.seconds("attention", {.flops = 7, .bytes = 2}), 7) << "of the machine";
  EXPECT_DOUBLE_EQ(m.seconds("no such op", {.flops = 7, .bytes = 2}), 7);
}

TEST(CostModels, TheFactorIsOfCallsAsWell) {
  const CostModel m{
      .flops_per_second = 10, .bytes_per_second = 10, .seconds_per_call = 1, .factor = 1.5};
  EXPECT_DOUBLE_EQ(m.seconds("linear", {.flops = 10, .bytes = 0}), 3);
}

TEST(OpKinds, AreFoundByTheNamesOfOps) {
  EXPECT_EQ(kind_of("attention"), OpKind::attention);
  EXPECT_EQ(kind_of("attention_backward"), OpKind::attention_backward);
  EXPECT_EQ(kind_of("head_loss_backward"), OpKind::head);
  EXPECT_EQ(kind_of("adamw8bit"), OpKind::optimizer);
  EXPECT_EQ(kind_of("adam"), std::nullopt);
}

TEST(SimQueue, ChargesEachOpAtTheRatesOfItsKind) {
  CostModel m{.flops_per_second = 1, .bytes_per_second = 1};
  m.rates(OpKind::product) = {10, 10};
  m.rates(OpKind::optimizer) = {.bytes_per_second = 2};
  Arena arena;
  Queue q(Device::sim, arena, m);
  (void)q.account("linear", {.flops = 20, .bytes = 0});
  (void)q.account("adamw", {.flops = 100, .bytes = 6});
  EXPECT_DOUBLE_EQ(q.seconds(), 5);
}

TEST(CostModels, AddWhereAProcessorDoesOneAfterTheOther) {
  CostModel m{.flops_per_second = 1, .bytes_per_second = 1, .seconds_per_call = 100};
  m.rates(OpKind::product) = {10, 5, 0.5, true};
  EXPECT_DOUBLE_EQ(m.seconds("linear", {.flops = 20, .bytes = 20}), 0.5 + 2 + 4);
  m.rates(OpKind::product)->adds = false;
  EXPECT_DOUBLE_EQ(m.seconds("linear", {.flops = 20, .bytes = 20}), 0.5 + 4);
}

}  // namespace
}  // namespace capstan
