#include "plan/track_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/units.h"

namespace capstan {
namespace {

bool is(std::string_view asked, std::string_view found) {
  return asked.empty() || asked == found;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double memory_error(const PlannedRun& run) {
  if (run.predicted_bytes == 0 || run.measured_bytes == 0) return 0;
  const auto measured = static_cast<double>(run.measured_bytes);
  return std::abs(measured / static_cast<double>(run.predicted_bytes) - 1);
}

std::string runs_text(int runs) {
  return runs == 1 ? "one run" : format_grouped(runs) + " runs";
}

std::string ratio_text(double ratio) {
  return ratio < 9.995 ? fmt::format("{:.2f}", ratio) : fmt::format("{:.0f}", ratio);
}

std::string percent_text(double part) {
  return part < 0.0995 ? fmt::format("{:.1f}%", 100 * part) : fmt::format("{:.0f}%", 100 * part);
}

std::string times_text(const TrackRecord& r) {
  const std::string lowest = ratio_text(r.lowest_ratio), highest = ratio_text(r.highest_ratio);
  std::string text = fmt::format("  here, {} took {}", runs_text(r.timed), lowest);
  if (highest != lowest) text += " to " + highest;
  text += " of the predicted time";
  if (r.timed > 1) text += ", median error " + percent_text(r.median_error);
  return text;
}

}  // namespace

std::optional<TrackRecord> record_of(std::span<const PlannedRun> history, const RunsOf& which) {
  TrackRecord record;
  std::vector<double> ratios, errors;
  for (const PlannedRun& run : history) {
    if (run.device != which.device || !is(which.precision, run.precision)) continue;
    if (which.ranks > 0 && (run.ranks > 1) != (which.ranks > 1)) continue;
    ++record.runs;
    record.memory_worst_error = std::max(record.memory_worst_error, memory_error(run));
    if (!is(which.calibration, run.calibration)) continue;
    if (!(run.predicted_step_seconds > 0 && run.measured_step_seconds > 0)) continue;
    ratios.push_back(run.measured_step_seconds / run.predicted_step_seconds);
    errors.push_back(std::abs(ratios.back() - 1));
  }
  if (record.runs == 0) return std::nullopt;
  record.timed = static_cast<int>(ratios.size());
  if (ratios.empty()) return record;
  const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
  record.lowest_ratio = *lowest;
  record.highest_ratio = *highest;
  record.median_ratio = median(ratios);
  record.median_error = median(errors);
  record.worst_error = *std::max_element(errors.begin(), errors.end());
  return record;
}

double correction(const std::optional<TrackRecord>& record) {
  return record && record->timed >= kEnoughToCorrect ? record->median_ratio : 1;
}

std::string history_line(const TrackRecord& r) {
  std::string text =
      r.timed > 0 ? times_text(r)
                  : fmt::format("  here, the time of {} was not predicted", runs_text(r.runs));
  if (r.memory_worst_error > 0)
    text +=
        fmt::format("\n  their memory was up to {:.2g}% off the plan", 100 * r.memory_worst_error);
  return text;
}

}  // namespace capstan
