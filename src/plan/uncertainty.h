#pragma once

#include <optional>
#include <string>

#include "plan/calibration.h"
#include "plan/track_record.h"

namespace capstan {

// How far times may be from what was predicted, as factors of it, and how that is known.
struct Uncertainty {
  double low = 1, high = 1;
  std::string origin;
};

// Runs whose lowest and highest ratio hold that of the next one with 90%: (n - 1) / (n + 1).
inline constexpr int kEnoughToNarrow = 19;

// What predictions by such a calibration were off by (docs/performance.md, docs/planner.md); of
// several GPUs whose links were not measured, as by data sheet. The record of this device, if it
// has kEnoughToCorrect runs, widens that to what they took, and from kEnoughToNarrow runs on it
// takes its place; 1 is always within.
//
// `corrected`: the factor that predictions were multiplied by (plan/track_record.h), from which
// the runs of the record are then as far off as they differ from each other.
Uncertainty uncertainty_of(const Calibration& calibration, int ranks, int machines,
                           const std::optional<TrackRecord>& record = {}, double corrected = 1);

}  // namespace capstan
