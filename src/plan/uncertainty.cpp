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

// As predictions by such calibrations are.
Uncertainty usual(const Calibration& calibration, bool measured, int machines) {
  const bool cpu = calibration.device == Device::cpu;
  if (!measured && !cpu)
    return {kSheetLow, machines > 1 ? kSheetsHigh : kSheetHigh,
            calibration.from_data_sheet
                ? "which is how far off data sheets usually are"
                : "as what connects the GPUs is by data sheet, and so far off that usually is"};
  if (!cpu) return {kGpuLow, kGpuHigh, "which is how far off steps of a calibrated GPU were"};
  return {kCpuLow, kCpuHigh, "which is how far off steps on calibrated CPUs were"};
}

}  // namespace

Uncertainty uncertainty_of(const Calibration& calibration, int ranks, int machines,
                           const std::optional<TrackRecord>& record, double corrected) {
  const bool measured = all_measured(calibration, ranks, machines);
  Uncertainty u = usual(calibration, measured, machines);
  if (!record || record->timed < kEnoughToCorrect) return u;
  if (!measured && calibration.device != Device::cpu) return u;
  const double low = std::min(1.0, record->lowest_ratio / corrected);
  const double high = std::max(1.0, record->highest_ratio / corrected);
  const std::string runs = count(record->timed, "run");
  if (record->timed >= kEnoughToNarrow)
    return {low, high, fmt::format("which is how far off {} here were", runs)};
  if (low >= u.low && high <= u.high) return u;  // so few are no reason to expect less
  return {std::min(low, u.low), std::max(high, u.high),
          fmt::format("which is how far off {} here were, or such calibrations are", runs)};
}

}  // namespace capstan
