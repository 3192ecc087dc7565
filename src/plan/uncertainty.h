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

// By the record of this device, if it has kEnoughToCorrect runs (and 1 is within it); else what
// predictions by such a calibration were off by (docs/performance.md, docs/planner.md). Of several
// GPUs whose links were not measured, as by data sheet.
Uncertainty uncertainty_of(const Calibration& calibration, int ranks, int machines,
                           const std::optional<TrackRecord>& record = {});

}  // namespace capstan
