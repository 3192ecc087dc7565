#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "report/metrics.h"

namespace capstan {

// A file or service that receives a run's measurements.
class MetricsSink {
 public:
  MetricsSink() = default;
  MetricsSink(const MetricsSink&) = delete;
  MetricsSink& operator=(const MetricsSink&) = delete;
  virtual ~MetricsSink() = default;

  virtual void write(const MetricsRow& row) = 0;
  // Flushes what was written to disk. Any thread may call it.
  virtual void sync() = 0;
  // The file that it writes.
  virtual const std::filesystem::path& path() const = 0;
  // Nothing follows. `files` belong to the run's result: a tracker may keep copies.
  virtual void finish(RunEnd end, std::span<const std::filesystem::path> files) {
    (void)end, (void)files;
  }
};

}  // namespace capstan
