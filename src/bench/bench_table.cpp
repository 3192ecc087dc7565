#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "bench/machine_bench.h"
#include "report/bar.h"

namespace capstan {
namespace {

using Unit = BenchRow::Unit;

struct NamedPeak {
  std::string_view part;  // part of the device's name
  DevicePeak peak;        // dense, in TFLOP/s and GB/s; f16 is as fast as bf16
};
// From the vendors' data sheets; a name comes before any shorter name that it contains.
constexpr NamedPeak kPeaks[] = {
    {"B200", {80, 1125, 2250, 4500, 8000}},
    {"GH200", {67, 494.5, 989, 1979, 4000}},
    {"H200", {67, 494.5, 989, 1979, 4800}},
    {"H100 PCIe", {51, 378, 756, 1513, 2000}},
    {"H100", {67, 494.5, 989, 1979, 3350}},
    {"A100 80GB PCIe", {19.5, 156, 312, 0, 1935}},
    {"A100-SXM4-80GB", {19.5, 156, 312, 0, 2039}},
    {"A100", {19.5, 156, 312, 0, 1555}},
    {"L40S", {91.6, 0, 362, 733, 864}},
    {"V100", {15.7, 0, 125, 0, 900}},
    {"T4", {8.1, 0, 65, 0, 300}},
    {"L4", {30.3, 0, 121, 242, 300}},
    {"A10", {31.2, 0, 125, 0, 600}},
    {"A40", {37.4, 0, 149.7, 0, 696}},
    {"A6000", {38.7, 0, 154.8, 0, 768}},
    {"RTX 3090", {35.6, 0, 71, 0, 936}},
    {"RTX 4090", {82.6, 0, 165, 330, 1008}},
    {"RTX 5090", {105, 0, 209.5, 419, 1792}},
};

double peak_of(const DevicePeak& peak, const BenchRow& row) {
  if (row.unit == Unit::bytes) return peak.bytes;
  if (row.type == "bf16" || row.type == "f16") return peak.narrow;
  if (row.type == "fp8") return peak.fp8;
  return row.type == "tf32" ? peak.tf32 : peak.f32;
}

bool over_the_bus(const BenchRow& row) {
  return row.unit == Unit::bytes && row.type.empty() && row.what.find("host") != std::string::npos;
}

double best_like(const BenchRow& row, const BenchResult& result) {
  // Data read from a cache is faster than the copy, which goes through memory.
  double best = row.unit == Unit::bytes ? result.calibration.bytes_per_second : 0;
  for (const BenchRow& other : result.rows)
    if (other.unit == row.unit && !over_the_bus(other) &&
        (row.unit == Unit::bytes || other.type == row.type))
      best = std::max(best, other.value);
  return best;
}

std::string value_of(const BenchRow& row) {
  switch (row.unit) {
    case Unit::flops:
      return row.value < 1e12 ? fmt::format("{:.1f} GFLOP/s", row.value / 1e9)
                              : fmt::format("{:.1f} TFLOP/s", row.value / 1e12);
    case Unit::bytes: return fmt::format("{:.1f} GB/s", row.value / 1e9);
    case Unit::seconds:
      return row.value < 1e-3 ? fmt::format("{:.2f} us", row.value * 1e6)
                              : format_duration(row.value);
  }
  return "?";
}

}  // namespace

std::optional<DevicePeak> known_peak(std::string_view name) {
  for (const NamedPeak& row : kPeaks)
    if (name.find(row.part) != std::string_view::npos)
      return DevicePeak{row.peak.f32 * 1e12, row.peak.tf32 * 1e12, row.peak.narrow * 1e12,
                        row.peak.fp8 * 1e12, row.peak.bytes * 1e9};
  return std::nullopt;
}

std::optional<double> share_of_peak(const BenchRow& row, const BenchResult& result) {
  if (row.unit == Unit::seconds || over_the_bus(row)) return std::nullopt;
  const auto known = known_peak(result.calibration.name);
  const double peak = known ? peak_of(*known, row) : best_like(row, result);
  return peak > 0 ? std::optional(row.value / peak) : std::nullopt;
}

std::string bench_table(const BenchResult& result) {
  constexpr int kBar = 20;
  std::string s = fmt::format("{}\n\n", result.calibration.name);
  for (const BenchRow& row : result.rows) {
    s += fmt::format("  {:<38}{:<11}{:>15}", row.what, row.type, value_of(row));
    if (const auto share = share_of_peak(row, result))
      s += fmt::format(
          "  {} {}", block_bar(*share, kBar),
          *share > 1.005 ? ">100% (from a cache)" : fmt::format("{:>3.0f}%", 100 * *share));
    s += '\n';
  }
  s += known_peak(result.calibration.name) ? "\n  bars: share of the vendor's peak\n"
                                           : "\n  bars: share of the best product of the same "
                                             "type, and of the fastest memory-bound op\n";
  return s;
}

}  // namespace capstan
