#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "report/metrics.h"

namespace capstan {

// Flushes the names above a file of logs/LOGGER/version_N to disk.
inline void sync_names_above(const std::filesystem::path& file) {
  std::filesystem::path folder = file.parent_path();
  for (int i = 0; i < 3; ++i, folder = folder.parent_path()) sync_folder(folder);
}

// A file or service that receives a run's measurements.
class MetricsSink {
 public:
  MetricsSink() = default;
  MetricsSink(const MetricsSink&) = delete;
  MetricsSink& operator=(const MetricsSink&) = delete;
  virtual ~MetricsSink() = default;

  virtual void write(const MetricsRow& row) = 0;
  // The rows of a resumed run up to its step, as metrics.csv has them: a tracker writes those that
  // it lacks.
  virtual void catch_up(std::span<const MetricsRow> rows) { (void)rows; }
  // Flushes what was written to disk. Any thread may call it.
  virtual void sync() = 0;
  // Flushes the names of its file and folders.
  virtual void sync_names() { sync_names_above(path()); }
  // The file that it writes.
  virtual const std::filesystem::path& path() const = 0;
  // Nothing follows: writes how the run ended. `files` belong to its result: a tracker may keep
  // copies.
  virtual void finish(RunEnd end, std::span<const std::filesystem::path> files) {
    (void)end, (void)files;
  }
  // After finish: waits until a server has what was written, or does not take it. False if the wait
  // was ended by `stopped` before.
  virtual bool deliver(const StopAsked& stopped) { return (void)stopped, true; }
};

}  // namespace capstan
