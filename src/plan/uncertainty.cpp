#include "plan/uncertainty.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"

namespace capstan {
namespace {

// Measured / predicted: steps on an H200 with its own calibration; steps on CPUs, 20 random recipes
// with one; published steps, which other programs took, on one machine and on several.
constexpr double kGpuLow = 0.92, kGpuHigh = 1.06;
constexpr double kCpuLow = 0.80, kCpuHigh = 1.25;
constexpr double kSheetLow = 0.85, kSheetHigh = 1.25, kSheetsHigh = 1.4;

}  // namespace

Uncertainty uncertainty_of(const Calibration& calibration, int ranks, int machines,
                           const std::optional<TrackRecord>& record) {
  const bool cpu = calibration.device == Device::cpu;
  const bool measured = all_measured(calibration, ranks, machines);
  if (record && record->timed >= kEnoughToCorrect && (measured || cpu))
    return {std::min(1.0, record->lowest_ratio), std::max(1.0, record->highest_ratio),
            fmt::format("which is how far off {} here were", count(record->timed, "run"))};
  if (!measured && !cpu)
    return {kSheetLow, machines > 1 ? kSheetsHigh : kSheetHigh,
            calibration.from_data_sheet
                ? "which is how far off data sheets usually are"
                : "as what connects the GPUs is by data sheet, and so far off that usually is"};
  if (!cpu) return {kGpuLow, kGpuHigh, "which is how far off steps of a calibrated GPU were"};
  return {kCpuLow, kCpuHigh, "which is how far off steps on calibrated CPUs were"};
}

}  // namespace capstan
