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

Uncertainty uncertainty_of(const Calibration& calibration, int machines,
                           const std::optional<TrackRecord>& record) {
  if (record && record->timed >= kEnoughToCorrect)
    return {std::min(1.0, record->lowest_ratio), std::max(1.0, record->highest_ratio),
            fmt::format("which is how far off {} here were", count(record->timed, "run"))};
  if (calibration.from_data_sheet)
    return {kSheetLow, machines > 1 ? kSheetsHigh : kSheetHigh,
            "which is how far off data sheets usually are"};
  if (calibration.device == Device::cuda)
    return {kGpuLow, kGpuHigh, "which is how far off steps of a calibrated GPU were"};
  return {kCpuLow, kCpuHigh, "which is how far off steps on calibrated CPUs were"};
}

}  // namespace capstan
