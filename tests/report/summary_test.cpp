#include "report/summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/units.h"

namespace capstan {
namespace {

// 3 KiB of weights stay; 6 KiB and 1 KiB of activations and workspace come and go in "step".
void work(Arena& arena, std::vector<Buffer>& kept) {
  kept.push_back(arena.make(Category::weights, DType::f32, {768}, "weight"));
  const auto phase = arena.phase("step");
  const Buffer x = arena.make(Category::activations, DType::f32, {1536}, "hidden");
  const Buffer y = arena.make(Category::workspace, DType::f32, {256}, "scratch");
}

MemoryPlan planned() {
  Arena arena;
  std::vector<Buffer> kept;
  work(arena, kept);
  return arena.plan();
}

bool has_row(const std::string& table, const std::string& name,
             const std::vector<std::string>& cells) {
  std::string row = fmt::format("  {:<14}", name);
  for (const std::string& cell : cells) row += fmt::format("{:>12}", cell);
  return table.find(row) != std::string::npos;
}

TEST(PlanTable, HasTheBytesOfEachCategoryAtThePeakAndWhereThatIs) {
  const std::string table = plan_table(planned());
  EXPECT_TRUE(has_row(table, "weights", {"3.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "activations", {"6.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "workspace", {"1.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "total", {"10.0 KiB"})) << table;
  EXPECT_NE(table.find("(most at 'scratch' in the phase 'step')"), std::string::npos) << table;
}

TEST(PlanTable, LeavesOutWhatIsNotThere) {
  const std::string table = plan_table(planned());
  for (const char* name : {"gradients", "optimizer", "data", "cache", "packing"})
    EXPECT_EQ(table.find(name), std::string::npos) << table;
}

TEST(PlanTable, ItsRowsAddUpToTheTotal) {
  MemoryPlan plan = planned();
  plan.total_bytes += 2048;  // as if packing had left a hole
  const std::string table = plan_table(plan);
  EXPECT_TRUE(has_row(table, "packing", {"2.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "total", {"12.0 KiB"})) << table;
}

TEST(MemoryTable, HasPlannedAndMeasuredBytesSideBySide) {
  const MemoryPlan plan = planned();
  Arena arena(plan);
  std::vector<Buffer> kept;
  const std::string before = memory_table(plan, arena);
  EXPECT_TRUE(has_row(before, "weights", {"3.00 KiB", "0 B"})) << before;
  work(arena, kept);
  const std::string after = memory_table(plan, arena);
  EXPECT_TRUE(has_row(after, "weights", {"3.00 KiB", "3.00 KiB"})) << after;
  EXPECT_TRUE(has_row(after, "activations", {"6.00 KiB", "6.00 KiB"})) << after;
  EXPECT_TRUE(has_row(after, "workspace", {"1.00 KiB", "1.00 KiB"})) << after;
  EXPECT_TRUE(has_row(after, "total", {"10.0 KiB", "10.0 KiB"})) << after;
  EXPECT_NE(after.find("process"), std::string::npos) << after;
}

TEST(OpTable, HasTheLongestOpsFirstWithTheirRates) {
  Arena arena;
  const CostModel model{.name = "", .flops_per_second = 1e9, .bytes_per_second = 1e9};
  Queue q(Device::sim, arena, model);
  (void)q.account("short", {.flops = 1e6, .bytes = 0});
  for (int i = 0; i < 3; ++i) (void)q.account("long", {.flops = 1e9, .bytes = 5e8});
  (void)q.account("middle", {.flops = 0, .bytes = 1e9});
  const std::string table = op_table(q, 2);
  const size_t first = table.find("long"), second = table.find("middle");
  ASSERT_NE(first, std::string::npos) << table;
  ASSERT_NE(second, std::string::npos) << table;
  EXPECT_LT(first, second);
  EXPECT_EQ(table.find("short"), std::string::npos) << "more than two rows:\n" << table;
  // 3 s of 4.001 s; 1 GFLOP/s and 0.5 GB/s.
  EXPECT_NE(table.find(fmt::format("  {:<24}{:>8}{:>8.1f}%{:>10}{:>11.1f}{:>9.1f}\n", "long", 3,
                                   75.0, "3.0 s", 1.0, 0.5)),
            std::string::npos)
      << table;
}

TEST(OpTable, IsAHeadAloneBeforeAnyWork) {
  Arena arena;
  const Queue q(Device::sim, arena);
  const std::string table = op_table(q, 8);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1) << table;
}

TEST(PeakResidentBytes, IsAtLeastWhatThisTestTouches) {
  const std::vector<char> touched(32 << 20, 1);
  EXPECT_GE(peak_resident_bytes(), int64_t{32} << 20);
  EXPECT_EQ(touched.back(), 1);
}

}  // namespace
}  // namespace capstan
