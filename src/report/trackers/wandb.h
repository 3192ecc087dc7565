#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "report/growing_file.h"
#include "report/metrics_sink.h"

// Weights & Biases, by the file of an offline run (wandb_file.h).
namespace capstan {

class WandbSink : public MetricsSink {
 public:
  // Makes a run in the folder, or goes on with the one there, after `step`. If its files are
  // damaged they are put aside with a warning, and a file of the same id takes their place.
  WandbSink(const std::filesystem::path& folder, const RunLabels& labels,
            std::optional<int64_t> step);
  ~WandbSink() override;

  // Rows of one step are one row there, which is written with the next step, or at the end.
  void write(const MetricsRow& row) override;
  void catch_up(std::span<const MetricsRow> rows) override;
  void sync() override;
  const std::filesystem::path& path() const override { return file_->path(); }
  void finish(RunEnd end, std::span<const std::filesystem::path> files) override;
  // With WANDB_MODE=online, uploads a run that has finished.
  bool deliver(const StopAsked& stopped) override;

 private:
  void begin(const std::filesystem::path& folder, const RunLabels& labels, const std::string& id);
  void resume(const std::filesystem::path& run, int64_t step);
  void append(uint32_t field, std::string_view message);
  void append_row();

  std::unique_ptr<GrowingFile> file_, index_;
  std::mutex mutex_;
  std::optional<MetricsRow> row_;  // of the last step
  double row_time_ = 0, start_ = 0;
  uint64_t records_ = 0;
  int64_t last_step_ = -1;  // in the file; a killed process may not have written its last
  bool finished_ = false;
  std::optional<RunEnd> end_;  // from finish to deliver
};

}  // namespace capstan
