#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sizes.h"
#include "plan/calibration.h"

// `capstan bench`: what a device reaches, and the calibration that follows from it.
namespace capstan {

struct BenchRow {
  enum class Unit { flops, bytes, seconds };  // per second, per second, of one
  std::string what;
  std::string type;  // "f32", "tf32", "bf16", "fp8", or empty
  Unit unit = Unit::flops;
  double value = 0;
};

struct BenchResult {
  std::vector<BenchRow> rows;
  Calibration calibration;
};

// `begin` is told each measurement before it is made, with its number (from 0) and how many there
// are. A training step that does not fit into the device's memory is left out.
using BenchProgress = std::function<void(std::string_view what, int64_t number, int64_t of)>;
BenchResult bench_machine(Device device, const BenchSizes& sizes, const BenchProgress& begin);

// What makers say that a device reaches, in FLOP/s and bytes/s; 0 where that is not known.
struct DevicePeak {
  double f32 = 0, tf32 = 0, bf16 = 0, fp8 = 0, bytes = 0;
};
std::optional<DevicePeak> known_peak(std::string_view name);

// The row's share of the device's peak (above 1 for what is read from a cache), or, where no peak
// is known, of the best of its type and unit that was measured. None for times and for the bus.
std::optional<double> share_of_peak(const BenchRow& row, const BenchResult& result);

// For people, with a bar for each share.
std::string bench_table(const BenchResult& result);

}  // namespace capstan
