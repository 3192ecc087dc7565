#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

// What runs were predicted to need, and what they needed: a file in the user's cache with one line
// of JSON for each run (docs/formats.md). TrackRecord says how good the predictions were.
namespace capstan {

struct Calibration;

// A run that ended. Seconds that are not known are 0.
struct PlannedRun {
  std::string date = {};         // of its end, UTC: "2026-08-05T12:34:56Z"
  std::string device = {};       // machine_name: "NVIDIA H200"
  std::string calibration = {};  // that predicted its time: label_of; empty: none
  bool from_data_sheet = false;  // that calibration was not measured
  std::string model = {}, precision = {};
  std::string mesh = {};  // "one rank", or mesh_name: "zero3"
  int ranks = 1;
  int64_t steps = 0;                                             // that were measured
  double predicted_step_seconds = 0, measured_step_seconds = 0;  // the mean
  double predicted_run_seconds = 0, measured_run_seconds = 0;    // of all those steps together
  // Of the device; of several ranks the one furthest from its plan, else the one that needs most.
  int64_t predicted_bytes = 0, measured_bytes = 0;

  bool operator==(const PlannedRun&) const = default;
};

// What the history calls a calibration: "NVIDIA H200 of 2026-08-05".
std::string label_of(const Calibration& calibration);
// A time as the history has it: "2026-08-05T12:34:56Z".
std::string history_date(std::chrono::system_clock::time_point time);

// The file beside the calibrations in the user's cache. Empty if there is no cache.
std::filesystem::path history_path();

// The file has at most this many lines. One more, and the newer half alone is kept.
inline constexpr int64_t kMostLines = 10'000;

// Adds a line for the run; creates the file and its folder if needed. Processes and threads may
// append at once: they take turns (flock). A file that cannot be written is a warning and stays as
// it was.
void append_history(const std::filesystem::path& path, const PlannedRun& run);

// The runs in the file, oldest first; none if there is no file. Lines that are not valid are left
// out with one warning, which points to the first of them.
std::vector<PlannedRun> read_history(const std::filesystem::path& path);

}  // namespace capstan
