#include "bench/machine_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/op_timer.h"

namespace capstan {
namespace {

BenchSizes tiny() {
  BenchSizes s;
  s.squares = {64};
  s.few = 2;
  s.tokens = 64, s.hidden = 128, s.inner = 64;
  s.head_tokens = 8, s.vocab = 256;
  s.documents = {{2, 32}, {1, 96}}, s.heads = 2, s.kv_heads = 1, s.head_dim = 64;
  s.copied = 1 << 16;
  ModelConfig m;
  m.vocab = 256, m.hidden = 128, m.intermediate = 64, m.layers = 1;
  m.heads = 2, m.kv_heads = 1, m.head_dim = 64;
  s.steps = {{m, 2, 32}, {m, 1, 16, Recompute::block}, {m, 4, 8, Recompute::none, 2}};
  s.seconds = 0;
  return s;
}

std::vector<Device> devices() {
  std::vector<Device> all = {Device::cpu};
  if (cuda_present()) all.push_back(Device::cuda);
  return all;
}

TEST(MachineBench, MeasuresEveryRateOfACalibration) {
  for (const Device device : devices()) {
    SCOPED_TRACE(name_of(device));
    int64_t begun = 0, promised = 0;
    const BenchResult r =
        bench_machine(device, tiny(), [&](std::string_view what, int64_t number, int64_t of) {
          EXPECT_FALSE(what.empty());
          EXPECT_EQ(number, begun++);
          promised = of;
        });
    EXPECT_EQ(begun, promised);
    EXPECT_EQ(std::ssize(r.rows), promised) << "the step fits";
    // f32 and bf16; of a GPU f32, tf32, f16, and what not all of them have.
    const size_t types = device == Device::cpu ? 2 : 3 + (computes_bf16(device) ? 1 : 0);
    EXPECT_EQ(r.calibration.types.size(), types + (multiplies_fp8(device) ? 1 : 0));
    EXPECT_EQ(r.calibration.types.contains("fp8"), multiplies_fp8(device));
    for (const BenchRow& row : r.rows) EXPECT_TRUE(row.value > 0 && std::isfinite(row.value));
    // What is written can be read: every rate is there, and above 0.
    EXPECT_EQ(parse_calibration(calibration_json(r.calibration), "c"), r.calibration);
    EXPECT_EQ(r.calibration.precisions.size(), device == Device::cpu ? 3U : 0U);
    for (const auto& [name, costs] : r.calibration.precisions) {
      EXPECT_GT(costs.seconds, 0) << name;
      EXPECT_GT(costs.predicted, 0) << name;
    }
    for (const auto& [type, rates] : r.calibration.types)
      EXPECT_EQ(rates.step_predicted > 0, device == Device::cuda) << type;
    const std::string table = bench_table(r);
    EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), std::ssize(r.rows) + 4);
    EXPECT_NE(table.find("gate and up, backward"), std::string::npos) << table;
  }
}

TEST(MachineBench, QuickMeasuresLessOfTheSame) {
  for (const Device device : {Device::cpu, Device::cuda}) {
    const BenchSizes all = bench_sizes(device, false), quick = bench_sizes(device, true);
    EXPECT_LT(quick.seconds, all.seconds / 4);
    EXPECT_EQ(quick.hidden, all.hidden);
    ASSERT_EQ(quick.steps.size(), all.steps.size());
    for (size_t i = 0; i < all.steps.size(); ++i)
      EXPECT_EQ(quick.steps[i].model, all.steps[i].model);
  }
}

TEST(BenchTable, HasBarsOfThePeakThatIsKnown) {
  BenchResult r;
  r.calibration.name = "NVIDIA H200";
  r.calibration.bytes_per_second = 4e12;
  r.rows = {{"product", "bf16", BenchRow::Unit::flops, 494.5e12},
            {"copy", "", BenchRow::Unit::bytes, 1.2e12},
            {"host to device, pinned", "", BenchRow::Unit::bytes, 50e9},
            {"one call", "", BenchRow::Unit::seconds, 2.5e-6}};
  EXPECT_DOUBLE_EQ(*share_of_peak(r.rows[0], r), 0.5);
  EXPECT_DOUBLE_EQ(*share_of_peak(r.rows[1], r), 0.25);
  EXPECT_FALSE(share_of_peak(r.rows[2], r)) << "the bus is not the memory";
  EXPECT_FALSE(share_of_peak(r.rows[3], r));
  for (const char* part : {"494.5 TFLOP/s", " 50%", "1200.0 GB/s", " 25%", "2.50 us", "the vendor"})
    EXPECT_NE(bench_table(r).find(part), std::string::npos) << part << bench_table(r);
  r.calibration.name = "a processor";
  EXPECT_DOUBLE_EQ(*share_of_peak(r.rows[0], r), 1) << "of the best that was measured";
  EXPECT_DOUBLE_EQ(*share_of_peak(r.rows[1], r), 0.3);
}

// Small tensors stay in a cache, whose bandwidth no copy through memory reaches.
TEST(BenchTable, NothingIsMoreThanAllOfTheBest) {
  BenchResult r;
  r.calibration.name = "a processor";
  r.calibration.bytes_per_second = 10e9;
  r.rows = {{"copy, read and written", "", BenchRow::Unit::bytes, 10e9},
            {"rmsnorm, swiglu, rope", "f32", BenchRow::Unit::bytes, 21e9}};
  EXPECT_DOUBLE_EQ(*share_of_peak(r.rows[1], r), 1);
  EXPECT_NEAR(*share_of_peak(r.rows[0], r), 10.0 / 21, 1e-12);
  EXPECT_EQ(bench_table(r).find("210%"), std::string::npos) << bench_table(r);
  r.calibration.name = "NVIDIA A10";  // of 600 GB/s, says its maker
  r.rows[1].value = 1260e9;
  EXPECT_NE(bench_table(r).find(">100% (from a cache)"), std::string::npos) << bench_table(r);
}

TEST(KnownPeaks, TakeTheLongerOfTwoNames) {
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA A100-SXM4-80GB")->bytes, 2039e9);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA A10")->narrow, 125e12);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA H200")->fp8, 1979e12);
  EXPECT_DOUBLE_EQ(known_peak("NVIDIA GH200 480GB")->bytes, 4000e9);
  EXPECT_FALSE(known_peak("ARM, 2 threads"));
}

TEST(Medians, DoNotCountTheFirstAndTakeAtLeastThree) {
  int calls = 0;
  EXPECT_GE(median_seconds(0, [&] { ++calls; }), 0);
  EXPECT_EQ(calls, 4);
}

// On a slow machine a single call may take longer than all repeats should.
TEST(Medians, DoNotRepeatWhatTakesTooLong) {
  int calls = 0;
  EXPECT_GT(median_seconds(
                10, [&] { ++calls; }, 0),
            0);
  EXPECT_EQ(calls, 1);
}

// Once the time is over, three steps of a precision are enough for the cost of its calls.
TEST(MachineBench, LeavesOutStepsThatThereIsNoTimeFor) {
  BenchSizes sizes = tiny();
  sizes.steps.push_back(sizes.steps.front());
  sizes.steps.back().length = 96;
  const BenchResult r = bench_machine(Device::cpu, sizes, {});
  for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"}) {
    const auto of_precision = [&](const BenchRow& row) {
      return row.unit == BenchRow::Unit::seconds && row.type == precision;
    };
    EXPECT_EQ(std::count_if(r.rows.begin(), r.rows.end(), of_precision), 3) << precision;
    EXPECT_TRUE(r.calibration.precisions.contains(precision));
    for (const BenchRow& row : r.rows)
      if (of_precision(row)) {
        EXPECT_EQ(row.what.find("x 96 tokens"), std::string::npos) << "the longest is left out";
      }
  }
  sizes.limit = 3600;
  const BenchResult all = bench_machine(Device::cpu, sizes, {});
  EXPECT_EQ(std::ssize(all.rows), std::ssize(r.rows) + 3);
}

}  // namespace
}  // namespace capstan
