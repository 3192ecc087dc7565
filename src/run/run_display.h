#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/summary.h"
#include "run/run_folder.h"
#include "run/run_record.h"
#include "train/length.h"

namespace capstan {

// What trackers show of a run of this recipe.
RunLabels labels_of(const Recipe& recipe, Task task, const std::string& model);

// A run's output, of the rank that leads: the progress bar, LitGPT's lines, generated samples,
// metrics files, and at the end the loss curve and the report.
class RunDisplay {
 public:
  RunDisplay(const RunLength& length, int64_t log_interval)
      : length_(length), log_interval_(log_interval) {}

  // Sets the log that receives metrics from now on. Without one, they are not logged.
  void log_to(MetricsLog log) { metrics_ = std::move(log); }
  bool logs() const { return metrics_.has_value(); }
  // Trackers get these files of the result. False if `stopped` ended the wait for them.
  bool end_log(RunEnd end, const std::vector<std::filesystem::path>& files,
               const StopAsked& stopped) {
    return !metrics_ || metrics_->finish(end, files, stopped);
  }
  MetricsLog& metrics() { return *metrics_; }
  const MetricsLog& metrics() const { return *metrics_; }

  // Starts the bar after the steps already done. Excluded seconds (validation, saving) do not count
  // in seconds().
  void begin_bar(int64_t done);
  void exclude(double seconds) { bar_->exclude(seconds); }
  double seconds() const { return bar_->seconds(); }
  void end_bar() { bar_->finish(); }

  // Shows a step that took `seconds`, and whether a validation followed it; one that a signal ended
  // is missed.
  enum class Validated : uint8_t { no, yes, missed };
  void show_step(const StepResult& result, const RunRecord& record, double seconds,
                 Validated validated);
  // Whether the validation after this step was missed, by the metrics; and the one that was made
  // later.
  bool misses_validation(int64_t step) const;
  void show_missed_validation(const RunRecord& record, double learning_rate);
  void show_validation(const RunRecord& record, double seconds) const;
  void show_sample(int64_t step, const std::string& prompt, const std::string& text);
  void show_initial_validation(const RunRecord& record);
  void show_final_validation(const RunRecord& record);
  // The final validation loss, if an earlier process computed and logged it.
  std::optional<double> final_validation_logged(int64_t step) const;

  const std::vector<RunSummary::Sample>& samples() const { return samples_; }
  void write_report(const RunFolder& folder, const RunSummary& summary) const;

 private:
  bool is_logged(int64_t iterations, int64_t micro_batches, int64_t step) const;

  const RunLength& length_;
  int64_t log_interval_;
  std::optional<MetricsLog> metrics_;
  std::optional<Progress> bar_;
  std::vector<RunSummary::Sample> samples_;
};

}  // namespace capstan
