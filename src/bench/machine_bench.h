#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/sizes.h"
#include "bench/turns.h"
#include "plan/calibration.h"

// `capstan bench`: measures a device and derives its calibration.
namespace capstan {

struct BenchRow {
  enum class Unit { flops, bytes, seconds };  // FLOP per second, bytes per second, seconds
  std::string what;
  std::string type;  // "f32", "tf32", "bf16", "f16", "fp8", or empty
  Unit unit = Unit::flops;
  double value = 0;
};

struct BenchResult {
  std::vector<BenchRow> rows;
  Calibration calibration;
  // Measurements that other programs disturbed in every turn, and how many processors they had.
  struct Disturbed {
    std::string name;
    double processors = 0;
  };
  std::vector<Disturbed> disturbed;
  int64_t measurements = 0;
};

// Skips training steps that do not fit in the device's memory, and on a slow CPU those that would
// take longer than there is time (BenchSizes::limit). On a CPU, what other programs disturb is
// measured again.
BenchResult bench_machine(Device device, const BenchSizes& sizes, const BenchProgress& begin);

// The vendor's peak of a device, in FLOP/s and bytes/s; 0 if unknown.
struct DevicePeak {
  double f32 = 0, tf32 = 0, narrow = 0, fp8 = 0, bytes = 0;  // narrow: bf16 and f16
};
std::optional<DevicePeak> known_peak(std::string_view name);

// The row's share of the device's peak (above 1 for data read from a cache), or, without a known
// peak, of the best measured row of its type and unit. None for times and for the bus.
std::optional<double> share_of_peak(const BenchRow& row, const BenchResult& result);

// A printable table, with a bar for each share.
std::string bench_table(const BenchResult& result);

}  // namespace capstan
