#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "recipe/loggers.h"
#include "report/put_aside.h"

namespace capstan {

// Measurements of one iteration (a micro-batch) or optimizer step. Fields without a value were not
// measured: a validation before the first step only has a val_loss.
struct MetricsRow {
  int64_t epoch = 0, iter = 0, step = 0;
  std::optional<double> iter_time = {};  // seconds
  std::optional<double> learning_rate = {};
  std::optional<double> loss = {};
  int64_t tokens = 0;        // of this iteration or step
  int64_t total_tokens = 0;  // so far, including before a resume
  std::optional<double> val_loss = {};
  std::optional<double> grad_norm = {};

  std::optional<double> val_ppl() const;  // exp(val_loss)
};

// Its values by name, as trackers show them; those without a value are absent.
std::vector<std::pair<std::string_view, double>> named_values(const MetricsRow& row);

// What trackers show of a run besides its measurements.
struct RunLabels {
  std::string project = "capstan", run = {}, group = {};
  std::vector<std::pair<std::string, std::string>> params = {};  // the recipe
};
// Whether a wait is to end: asked many times a second. Empty: it is not.
using StopAsked = std::function<bool()>;
enum class RunEnd : uint8_t { finished, stopped, failed };

// metrics.csv has this line, then one line per row: empty cells for missing values, numbers in the
// shortest form that reads back as the same double (and "nan", "inf"). The columns are LitGPT's, so
// grad_norm is only in the other two formats.
inline constexpr std::string_view kMetricsColumns =
    "epoch,iter,iter_time,learning_rate,loss,step,tokens,total_tokens,val_loss,val_ppl";
std::string csv_line(const MetricsRow& row);    // with the newline
std::string jsonl_line(const MetricsRow& row);  // with the newline; omits keys without a
// value; what is not finite is "NaN", "Infinity" or "-Infinity"

// Reads a metrics.csv that Capstan wrote; lines that are not rows go to `bad`. Throws Fault::file
// for a file that does not begin with kMetricsColumns.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& csv,
                                     std::vector<BadLine>* bad = nullptr);

// Throws, before a run, for loggers that cannot work here: Fault::usage for a MLFLOW_TRACKING_URI
// that is no URL, Fault::device where the program was built without libcurl.
void check_loggers(const Loggers& loggers);

// Where a run's measurements go, under out_dir/logs:
//
//   csv/version_N/metrics.csv                                        always
//   jsonl/version_N/metrics.jsonl                                    if requested
//   tensorboard/version_N/events.out.tfevents.<time>.<host>.<pid>    if requested
//   mlflow/version_N/outbox.jsonl, and to the server                 if requested
//   wandb/version_N/offline-run-<time>-<id>/run-<id>.wandb           if requested
//
// write passes each row to the operating system before it returns, so a killed run keeps its rows;
// sync flushes them to disk, so they survive a power cut. A full disk leaves whole rows only. Every
// failure is Fault::file and names the file; but trackers only warn, whatever happens to their
// files and servers.
class MetricsLog {
 public:
  // Starts a new version: N is one above the highest in any of these folders.
  MetricsLog(const Loggers& loggers, const std::filesystem::path& out_dir,
             const RunLabels& labels = {});
  // Continues the newest version after the given step. Removes later rows, which the resumed run
  // will write again. Warns about lines that are not rows and moves them to a file with ".bad"
  // appended to its name. Files are replaced atomically. TensorBoard gets a new event file that
  // starts with SessionLog START at step + 1 and so drops later points; points of that step stay.
  // Trackers go on with their run, and get the rows that their files lack. Starts a new version if
  // there is none, or none of ours.
  static MetricsLog resume(const Loggers& loggers, const std::filesystem::path& out_dir,
                           int64_t step, const RunLabels& labels = {});
  MetricsLog(MetricsLog&&) noexcept;
  MetricsLog& operator=(MetricsLog&&) noexcept;
  ~MetricsLog();

  void write(const MetricsRow& row);
  // Flushes the rows and the files' directory entries to disk. The returned function does the same;
  // another thread may call it, even after this object is destroyed.
  void sync() const { sync_later()(); }
  std::function<void()> sync_later() const;

  // Tells trackers how the run ended, and gives them these files; then waits, and says so, for what
  // is on its way to a server. False if `stopped` ended the wait before everything had arrived: a
  // resumed log (or `capstan sync`) sends the rest. Without this call, the run has failed.
  bool finish(RunEnd end, std::span<const std::filesystem::path> files,
              const StopAsked& stopped = {});

  // All rows of this version, including those before a resume: for the chart.
  std::vector<MetricsRow> rows() const { return read_metrics(csv_path()); }
  const std::filesystem::path& csv_path() const;
  // The file of the first logger that is requested.
  const std::filesystem::path& path() const;

 private:
  struct Files;
  explicit MetricsLog(std::shared_ptr<Files> files);
  std::shared_ptr<Files> files_;
};

}  // namespace capstan
