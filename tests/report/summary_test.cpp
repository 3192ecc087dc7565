#include "report/summary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

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
  const std::string table = plan_table({planned(), {}});
  EXPECT_TRUE(has_row(table, "weights", {"3.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "activations", {"6.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "workspace", {"1.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "total", {"10.0 KiB"})) << table;
  EXPECT_NE(table.find("(peak at 'scratch' in the phase 'step')"), std::string::npos) << table;
}

TEST(PlanTable, LeavesOutWhatIsNotThere) {
  const std::string table = plan_table({planned(), {}});
  for (const char* name : {"gradients", "optimizer", "data", "cache", "packing"})
    EXPECT_EQ(table.find(name), std::string::npos) << table;
}

TEST(PlanTable, ItsRowsAddUpToTheTotal) {
  MemoryPlan plan = planned();
  plan.total_bytes += 2048;  // as if packing had left a hole
  const std::string table = plan_table({plan, {}});
  EXPECT_TRUE(has_row(table, "packing", {"2.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "total", {"12.0 KiB"})) << table;
}

int64_t columns_of(std::string_view line) {
  return std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

TEST(PlanTable, HasABarForEachShare) {
  const std::string table = plan_table({planned(), {}});
  const auto bar = [](int full) {
    std::string s;
    for (int i = 0; i < 40; ++i) s += i < full ? "█" : " ";
    return s;
  };
  EXPECT_NE(table.find("3.00 KiB  " + bar(12) + "  30%\n"), std::string::npos) << table;
  EXPECT_NE(table.find("6.00 KiB  " + bar(24) + "  60%\n"), std::string::npos) << table;
}

TEST(PlanTable, FitsEightyColumnsWhateverTheNames) {
  MemoryPlan plan = planned();
  for (const size_t n : {5, 20, 200}) {
    plan.peak_buffer = std::string(n, 'b');
    plan.peak_phase = std::string(n, 'p');
    const std::string table = plan_table({plan, {}});
    for (size_t at = 0, end = 0; (end = table.find('\n', at)) != std::string::npos; at = end + 1)
      EXPECT_LE(columns_of(std::string_view(table).substr(at, end - at)), 80) << table;
  }
}

TEST(PlanTable, HostMemoryHasAPartOfItsOwnWithItsOwnShares) {
  Arena host;
  const Buffer moments = host.make(Category::optimizer, DType::f32, {1024}, "moments");
  const std::string table = plan_table({planned(), host.plan()});
  EXPECT_EQ(table.find(plan_table({planned(), {}})), 0U) << table;
  EXPECT_TRUE(has_row(table, "host memory", {"planned"})) << table;
  EXPECT_TRUE(has_row(table, "optimizer", {"4.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "total", {"4.00 KiB"})) << table;
  EXPECT_NE(table.find("100%"), std::string::npos) << table;
}

TEST(MemoryTable, HostMemoryHasAPartOfItsOwn) {
  MemoryUse host{.planned_bytes = 4096, .measured_bytes = 4096};
  at(host.planned, Category::staging) = 4096;
  at(host.measured, Category::staging) = 2048;
  const std::string table = memory_table({}, host);
  EXPECT_TRUE(has_row(table, "host memory", {"planned", "measured"})) << table;
  EXPECT_TRUE(has_row(table, "staging", {"4.00 KiB", "2.00 KiB"})) << table;
  EXPECT_TRUE(has_row(table, "total", {"4.00 KiB", "4.00 KiB"})) << table;
  EXPECT_EQ(memory_table({}).find("host memory"), std::string::npos);
}

TEST(MemoryTable, HasPlannedAndMeasuredBytesSideBySide) {
  const MemoryPlan plan = planned();
  Arena arena(plan);
  std::vector<Buffer> kept;
  const std::string before = memory_table(memory_use(plan, arena));
  EXPECT_TRUE(has_row(before, "weights", {"3.00 KiB", "0 B"})) << before;
  work(arena, kept);
  const std::string after = memory_table(memory_use(plan, arena));
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
  (void)q.account({"short", OpKind::product}, {.flops = 1e6, .bytes = 0});
  for (int i = 0; i < 3; ++i)
    (void)q.account({"long", OpKind::product}, {.flops = 1e9, .bytes = 5e8});
  (void)q.account({"middle", OpKind::product}, {.flops = 0, .bytes = 1e9});
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

RunSummary some_run() {
  RunSummary r;
  r.steps = 120;
  r.total_steps = 120;
  r.train_seconds = 200;
  r.input_tokens = 124985;
  r.tokens_with_prompt = 230000;
  r.tokens_with_padding = 250000;
  r.memory.measured_bytes = 6130000000;
  r.memory.planned_bytes = 6130000000;
  return r;
}

TEST(ClosingBlock, HasLitGptsLabelsAndBothRates) {
  EXPECT_EQ(closing_block(some_run()),
            "| ------------------------------------------------------\n"
            "| Token Counts\n"
            "| - Input Tokens              :  124985\n"
            "| - Tokens w/ Prompt          :  230000\n"
            "| - Total Tokens (w/ Padding) :  250000\n"
            "| ------------------------------------------------------\n"
            "| Performance\n"
            "| - Training Time             :  200.00 s\n"
            "| - Tok/sec (w/o Padding)     :  1150.00 tok/s\n"
            "| - Tok/sec (w/ Padding)      :  1250.00 tok/s\n"
            "| ------------------------------------------------------\n"
            "| Memory Usage\n"
            "| - Memory Used               :  6.13 GB\n"
            "| - Memory Planned            :  6.13 GB\n"
            "-------------------------------------------------------\n");
}

TEST(ClosingBlock, OfASmallRunShowsItsMemoryInAUnitThatTells) {
  const auto used = [](int64_t bytes) {
    RunSummary r = some_run();
    r.memory.measured_bytes = bytes;
    const std::string block = closing_block(r), label = "| - Memory Used               :  ";
    const size_t at = block.find(label) + label.size();
    return block.substr(at, block.find('\n', at) - at);
  };
  EXPECT_EQ(used(8945664), "8.95 MB");
  EXPECT_EQ(used(12345), "12.35 KB");
  EXPECT_EQ(used(994e6), "994.00 MB");
  EXPECT_EQ(used(995e6), "0.99 GB");
  EXPECT_EQ(used(123456789012), "123.46 GB");
}

TEST(ClosingBlock, ShowsWhatElseIsKnown) {
  RunSummary r = some_run();
  r.eval_seconds = 3;
  r.save_seconds = 1.5;
  r.flops = 4e12;
  r.peak_flops_per_second = 1e11;
  r.process_bytes = 7000000000;
  r.host_memory.measured_bytes = r.host_memory.planned_bytes = 2500000000;
  r.first_loss = 2.5;
  r.last_loss = 1.25;
  r.val_loss = 0;
  r.checkpoint = "out/final";
  const std::string block = closing_block(r);
  for (const char* line :
       {"| - Evaluation Time           :  3.00 s\n", "| - Saving Time               :  1.50 s\n",
        "| - GFLOP/s                   :  20.0\n", "| - MFU                       :  20.0 %\n",
        "| - Host Memory Used          :  2.50 GB\n", "| - Host Memory Planned       :  2.50 GB\n",
        "| - Process, peak             :  7.00 GB\n", "| Result\n",
        "| - First Loss                :  2.5000\n", "| - Last Loss                 :  1.2500\n",
        "| - Val Loss                  :  0.0000 (ppl 1.000)\n",
        "| - Saved To                  :  out/final\n"})
    EXPECT_NE(block.find(line), std::string::npos) << line << block;
}

TEST(ClosingBlock, SetsTheMeasuredStepBesideThePredictedOne) {
  RunSummary r = some_run();
  r.step_seconds = 0.231;
  EXPECT_EQ(closing_block(r).find("Step Time"), std::string::npos) << "nothing was predicted";
  r.predicted_seconds = 0.22;
  EXPECT_NE(closing_block(r).find("0.231 s (0.22 s predicted, +5.0 %)"), std::string::npos)
      << closing_block(r);
}

TEST(RunSummary, KnowsNoRatesOfARunWithoutTime) {
  RunSummary r = some_run();
  EXPECT_FALSE(r.mfu());
  r.train_seconds = 0;
  r.flops = r.peak_flops_per_second = 1;
  EXPECT_EQ(r.tokens_per_second(), 0);
  EXPECT_EQ(r.tokens_per_second_with_padding(), 0);
  EXPECT_FALSE(r.mfu());
}

TEST(Verdict, SaysHowFarAndHowWell) {
  RunSummary r = some_run();
  EXPECT_EQ(verdict(r), "Trained 120 steps in 3:20");
  r.steps = r.total_steps = 1;
  EXPECT_EQ(verdict(r), "Trained 1 step in 3:20");
  r = some_run();
  r.val_loss = 0;
  EXPECT_EQ(verdict(r), "Trained 120 steps in 3:20; validation 0.000 (perplexity 1.00)");
  r.first_loss = 2.5;
  r.last_loss = 1.25;
  r.total_steps = 400;
  EXPECT_EQ(verdict(r),
            "Trained 120 of 400 steps in 3:20; loss 2.500 to 1.250, validation 0.000 (perplexity "
            "1.00)");
  r.stopped_by = "SIGINT";
  EXPECT_EQ(verdict(r).rfind("Stopped by SIGINT after 120 of 400 steps in 3:20; loss ", 0), 0u);
}

}  // namespace
}  // namespace capstan
