#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "plan/history.h"

// How good the predictions for a device were, by the history of its runs, and the factor that
// corrects further ones.
namespace capstan {

// Which runs are asked for.
struct RunsOf {
  std::string_view device;            // machine_name
  std::string_view precision = {};    // empty: any
  std::string_view calibration = {};  // that predicted their times, as label_of; empty: any
  int ranks = 0;                      // one, or several if it is more; 0: any
};

// Ratios are measured / predicted, of the time of a step; an error is |ratio - 1|.
struct TrackRecord {
  int runs = 0;   // of the device, precision, and one or several ranks
  int timed = 0;  // of them, those whose two times are known, by the calibration
  double lowest_ratio = 0, median_ratio = 0,
         highest_ratio = 0;                  // of `timed` runs; 0: there are none
  double median_error = 0, worst_error = 0;  // of them, too
  double memory_worst_error = 0;             // of all `runs`
};

// None if the history has no such run.
std::optional<TrackRecord> record_of(std::span<const PlannedRun> history, const RunsOf& which);

// What to multiply predicted times by: the median ratio, or 1 if fewer than kEnoughToCorrect runs
// have one. Predictions in the history are never corrected ones, so corrections do not add up.
inline constexpr int kEnoughToCorrect = 3;
double correction(const std::optional<TrackRecord>& record);

// In at most 80 columns, without the last newline: "  here, 41 runs took 0.97 to 1.06 of the
// predicted time, median error 3.2%". A second line follows if memory was not as planned.
std::string history_line(const TrackRecord& record);

}  // namespace capstan
