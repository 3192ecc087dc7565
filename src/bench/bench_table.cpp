#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "bench/machine_bench.h"
#include "plan/gpu_catalogue.h"
#include "report/bar.h"

namespace capstan {
namespace {

using Unit = BenchRow::Unit;

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
  const GpuCatalogue catalogue = gpu_catalogue();
  const GpuModel* const gpu = catalogue.reported_as(name);
  if (gpu == nullptr) return std::nullopt;
  return DevicePeak{gpu->f32, gpu->tf32, gpu->narrow, gpu->fp8, gpu->bytes_per_second};
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
    s += fmt::format("  {:<42} {:<10} {:>14}", row.what, row.type, value_of(row));
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
