#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// What was measured at one iteration (a micro-batch) or step of the optimizer. What has no value
// was not measured: a validation before the first step has a val_loss alone.
struct MetricsRow {
  int64_t epoch = 0, iter = 0, step = 0;
  std::optional<double> iter_time = {};  // seconds
  std::optional<double> learning_rate = {};
  std::optional<double> loss = {};
  int64_t tokens = 0;        // of this iteration or step
  int64_t total_tokens = 0;  // up to here, with those before a resume
  std::optional<double> val_loss = {};
  std::optional<double> grad_norm = {};

  std::optional<double> val_ppl() const;  // exp(val_loss)
};

// metrics.csv has this line, then a line per row: empty cells where there is no value, numbers in
// the shortest form that reads back as the same double (and "nan", "inf"). These are LitGPT's
// columns, so grad_norm is only in the other two formats.
inline constexpr std::string_view kMetricsColumns =
    "epoch,iter,iter_time,learning_rate,loss,step,tokens,total_tokens,val_loss,val_ppl";
std::string csv_line(const MetricsRow& row);    // with the newline
std::string jsonl_line(const MetricsRow& row);  // with the newline; keys without value are left out

// A line that is no row: a run that was killed, a power cut or an editor may leave one.
struct BadLine {
  std::string text;  // as it is, without the newline
  std::string why;   // "file:line:column: expected …"
};

// Reads a metrics.csv of ours, less the lines that are no rows, which go to `bad`. Throws
// Fault::file for a file that does not begin with kMetricsColumns.
std::vector<MetricsRow> read_metrics(const std::filesystem::path& csv,
                                     std::vector<BadLine>* bad = nullptr);

enum class Logger : uint8_t { csv, tensorboard, jsonl };
// Throws Fault::usage for others, naming these three.
Logger parse_logger(std::string_view name);

// Where a run's measurements go, under out_dir/logs:
//
//   csv/version_N/metrics.csv                                        always
//   jsonl/version_N/metrics.jsonl                                    if asked for
//   tensorboard/version_N/events.out.tfevents.<time>.<host>.<pid>    if asked for
//
// Each row is handed to the system before write returns, so that a killed run keeps its rows; sync
// brings them to the disk, so that a power cut does not take them. A disk that is full leaves whole
// rows alone. Every failure is Fault::file and names the file.
class MetricsLog {
 public:
  // Begins a new version: N is one more than the highest there is, in any of the three folders.
  MetricsLog(Logger logger, const std::filesystem::path& out_dir);
  // Goes on in the newest version after the given step. Rows beyond (the resumed run makes them
  // again) are removed; lines that are no rows are warned of and put aside, in a file of the name
  // with ".bad" at its end. The files are replaced whole. TensorBoard gets a new
  // event file that begins with SessionLog START at step + 1 and so drops later points; those of
  // that step itself stay. Begins a new version where there is none, or none of ours.
  static MetricsLog resume(Logger logger, const std::filesystem::path& out_dir, int64_t step);
  MetricsLog(MetricsLog&&) noexcept;
  MetricsLog& operator=(MetricsLog&&) noexcept;
  ~MetricsLog();

  void write(const MetricsRow& row);
  // Brings the rows to the disk, and the files' names. The function does the same and may be called
  // by another thread, and after this object is gone.
  void sync() const { sync_later()(); }
  std::function<void()> sync_later() const;

  // All rows of this version, with those before a resume: for the picture.
  std::vector<MetricsRow> rows() const { return read_metrics(csv_path()); }
  const std::filesystem::path& csv_path() const;
  // The file of the logger that was asked for.
  const std::filesystem::path& path() const;

 private:
  struct Files;
  explicit MetricsLog(std::shared_ptr<Files> files);
  std::shared_ptr<Files> files_;
};

}  // namespace capstan
