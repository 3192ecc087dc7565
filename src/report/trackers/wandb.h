#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "report/growing_file.h"
#include "report/metrics_sink.h"

// Weights & Biases, by the file of an offline run, which `wandb sync` uploads (of wandb 0.16 to
// 0.31):
//
//   file     ":W&B" · u16 0xBEE1 · u8 0, then blocks of 32 KiB, counted from the file's beginning
//   chunk    u32 CRC-32 of type and data · u16 length · u8 type (1 whole, 2 first, 3 middle, 4 last
//            of a record) · data; little-endian. Where a block has no room for a chunk's 7 bytes: 0
//   record   a protocol buffer: 1 num · 2 history · 17 run · 18 exit · 21 header
//
// `index` beside it has a line "step end" for each row, so that a resumed run can go on after the
// row it resumes from.
namespace capstan {

class WandbSink : public MetricsSink {
 public:
  // Makes a run in the folder, or goes on with the one there, after `step`.
  WandbSink(const std::filesystem::path& folder, const RunLabels& labels,
            std::optional<int64_t> step);
  ~WandbSink() override;

  // Rows of one step are one row there, which is written with the next step, or at the end.
  void write(const MetricsRow& row) override;
  void sync() override;
  const std::filesystem::path& path() const override { return file_->path(); }
  void finish(RunEnd end, std::span<const std::filesystem::path> files) override;

  // Of the rows in the file; -1: there are none. A killed process may not have written its last.
  int64_t last_step() const { return last_step_; }

 private:
  void begin(const std::filesystem::path& folder, const RunLabels& labels);
  void resume(const std::filesystem::path& run, int64_t step);
  void append(uint32_t field, std::string_view message);
  void append_row();

  std::unique_ptr<GrowingFile> file_, index_;
  std::mutex mutex_;
  std::optional<MetricsRow> row_;  // of the last step
  double row_time_ = 0, start_ = 0;
  uint64_t records_ = 0;
  int64_t last_step_ = -1;
  bool finished_ = false;
};

}  // namespace capstan
