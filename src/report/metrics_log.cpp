#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "report/growing_file.h"
#include "report/metrics_sink.h"
#include "report/put_aside.h"
#include "report/tensorboard.h"
#include "report/trackers/mlflow_sink.h"
#include "report/trackers/wandb.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEventFile = "events.out.tfevents.";

// The number after `prefix` in a name; -1 for other names.
int64_t number_after(std::string_view name, std::string_view prefix, bool to_the_end) {
  int64_t n = 0;
  if (!name.starts_with(prefix)) return -1;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, n);
  return error == std::errc() && n >= 0 && (stop == end || !to_the_end) ? n : -1;
}

// The highest number after `prefix` among the names in a folder; -1 if there is none.
int64_t highest(const fs::path& folder, std::string_view prefix, bool to_the_end) {
  int64_t result = -1;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    result = std::max(result, number_after(name, prefix, to_the_end));
  }
  return result;
}

fs::path version(const fs::path& out_dir, std::string_view logger, int64_t n) {
  return out_dir / "logs" / logger / fmt::format("version_{}", n);
}

// Returns true if it created the folder.
bool make_folder(const fs::path& folder) {
  std::error_code error;
  const bool made = fs::create_directories(folder, error);
  require(!error, Fault::file, "{}: cannot create the folder: {}", folder.string(),
          error.message());
  return made;
}

// Two runs that start at once get different versions: only one of them creates the folder.
int64_t new_version(const fs::path& out_dir) {
  int64_t n = 0;
  for (const std::string_view logger : names_of<Logger>())
    n = std::max(n, 1 + highest(out_dir / "logs" / logger, "version_", true));
  while (!make_folder(version(out_dir, "csv", n))) ++n;
  return n;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads a folder's files in the order of their names, so a later one needs a later
// time.
fs::path next_event_file(const fs::path& folder) {
  const int64_t time =
      std::max(static_cast<int64_t>(wall_time()), 1 + highest(folder, kEventFile, false));
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == 0) host = {"localhost"};
  return folder / fmt::format("{}{}.{}.{}", kEventFile, time, host.data(), ::getpid());
}

// The lines of a metrics.jsonl up to a step.
std::string lines_until(const fs::path& path, int64_t step, std::vector<BadLine>& bad) {
  const std::string text = read_text(path, std::numeric_limits<int64_t>::max());
  std::string kept;
  int64_t number = 1;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 1, ++number) {
    end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const auto row = json_or_null(line);
    const bool has_step =
        row.is_object() && row.contains("step") && row["step"].is_number_integer();
    if (!has_step || end == text.size())
      bad.push_back({line, fmt::format("{}:{}:1: {}", path.string(), number,
                                       end == text.size() ? "the line is cut short"
                                                          : "expected an object with \"step\"")});
    else if (row["step"] <= step)
      kept += line + "\n";
  }
  return kept;
}

bool is_ours(const fs::path& csv) {
  std::error_code error;
  return fs::is_regular_file(csv, error) && read_text(csv, std::numeric_limits<int64_t>::max())
                                                .starts_with(std::string(kMetricsColumns) + "\n");
}

class JsonLines : public MetricsSink {
 public:
  explicit JsonLines(const fs::path& folder) : file_(folder / "metrics.jsonl") {}
  void write(const MetricsRow& row) override { file_.append(jsonl_line(row)); }
  void sync() override { file_.sync(); }
  const fs::path& path() const override { return file_.path(); }

 private:
  GrowingFile file_;
};

class TensorBoard : public MetricsSink {
 public:
  TensorBoard(const fs::path& folder, std::optional<int64_t> resumed)
      : file_(next_event_file(folder), O_EXCL) {
    file_.append(version_event(wall_time()));
    if (resumed) file_.append(restart_event(wall_time(), *resumed + 1));
  }
  void write(const MetricsRow& row) override {
    std::vector<Scalar> scalars;
    for (const auto& [name, value] : named_values(row))
      scalars.emplace_back(name, static_cast<float>(value));
    file_.append(scalars_event(wall_time(), row.step, scalars));
  }
  void sync() override { file_.sync(); }
  const fs::path& path() const override { return file_.path(); }

 private:
  GrowingFile file_;
};

void warn_of_tracker(const char* name, const std::exception& e) {
  log::warn("{}: {}; the run goes on, and metrics.csv has what it measures", name, e.what());
}

// A tracker, whose errors are warnings: the run goes on, and has its measurements in metrics.csv.
class Tracker : public MetricsSink {
 public:
  Tracker(const char* name, std::unique_ptr<MetricsSink> sink)
      : name_(name), sink_(std::move(sink)) {}

  void write(const MetricsRow& row) override {
    attempt([&] { sink_->write(row); });
  }
  void catch_up(std::span<const MetricsRow> rows) override {
    attempt([&] { sink_->catch_up(rows); });
  }
  void sync() override {
    attempt([&] { sink_->sync(); });
  }
  void sync_names() override {
    attempt([&] { sink_->sync_names(); });
  }
  const fs::path& path() const override { return sink_->path(); }
  void finish(RunEnd end, std::span<const fs::path> files) override {
    attempt([&] { sink_->finish(end, files); });
  }
  bool deliver(const StopAsked& stopped) override {
    bool all = true;
    attempt([&] { all = sink_->deliver(stopped); });
    return all;
  }

 private:
  template <class Body>
  void attempt(const Body& body) {
    try {
      body();
    } catch (const std::exception& e) {
      if (!told_.exchange(true)) warn_of_tracker(name_, e);
    }
  }

  const char* name_;
  std::unique_ptr<MetricsSink> sink_;
  std::atomic<bool> told_ = false;  // any thread may call sync
};

// None if it cannot be made.
template <class Sink, class... Args>
std::unique_ptr<MetricsSink> make_tracker(const char* name, const fs::path& folder,
                                          const Args&... args) {
  try {
    make_folder(folder);
    return std::make_unique<Tracker>(name, std::make_unique<Sink>(folder, args...));
  } catch (const std::exception& e) {
    warn_of_tracker(name, e);
    return nullptr;
  }
}

std::unique_ptr<MetricsSink> make_sink(Logger logger, const fs::path& folder,
                                       const RunLabels& labels, std::optional<int64_t> resumed) {
  if (logger == Logger::jsonl || logger == Logger::tensorboard) make_folder(folder);
  switch (logger) {
    case Logger::csv: return nullptr;  // always there
    case Logger::jsonl: return std::make_unique<JsonLines>(folder);
    case Logger::tensorboard: return std::make_unique<TensorBoard>(folder, resumed);
    case Logger::mlflow: return make_tracker<MlflowSink>("MLflow", folder, labels);
    case Logger::wandb: return make_tracker<WandbSink>("W&B", folder, labels, resumed);
  }
  return nullptr;
}

}  // namespace

struct MetricsLog::Files {
  Files(const Loggers& loggers, const fs::path& out_dir, int64_t n, const RunLabels& labels,
        std::optional<int64_t> resumed)
      : csv(version(out_dir, "csv", n) / "metrics.csv") {
    if (csv.size() == 0) csv.append(std::string(kMetricsColumns) + "\n");
    for (const Logger logger : loggers.kinds) {
      const fs::path folder = version(out_dir, name_of(logger), n);
      if (auto sink = make_sink(logger, folder, labels, resumed)) sinks.push_back(std::move(sink));
    }
  }

  void sync() {
    csv.sync();
    for (const auto& sink : sinks) sink->sync();
    if (named) return;
    sync_names_above(csv.path());
    for (const auto& sink : sinks) sink->sync_names();
    named = true;
  }

  GrowingFile csv;
  std::vector<std::unique_ptr<MetricsSink>> sinks;
  std::atomic<bool> named = false;  // the folders are flushed to disk
};

void check_loggers(const Loggers& loggers) {
  if (!loggers.has(Logger::mlflow)) return;
  mlflow_access();
  const Http http(1);
}

MetricsLog::MetricsLog(std::shared_ptr<Files> files) : files_(std::move(files)) {}
MetricsLog::MetricsLog(MetricsLog&&) noexcept = default;
MetricsLog& MetricsLog::operator=(MetricsLog&&) noexcept = default;
MetricsLog::~MetricsLog() = default;

MetricsLog::MetricsLog(const Loggers& loggers, const fs::path& out_dir, const RunLabels& labels)
    : files_(
          std::make_shared<Files>(loggers, out_dir, new_version(out_dir), labels, std::nullopt)) {}

MetricsLog MetricsLog::resume(const Loggers& loggers, const fs::path& out_dir, int64_t step,
                              const RunLabels& labels) {
  const int64_t n = highest(out_dir / "logs" / "csv", "version_", true);
  const fs::path csv = version(out_dir, "csv", n) / "metrics.csv";
  if (n < 0 || !is_ours(csv)) return {loggers, out_dir, labels};
  std::vector<BadLine> bad;
  std::vector<MetricsRow> rows;
  std::string kept = std::string(kMetricsColumns) + "\n";
  for (const MetricsRow& row : read_metrics(csv, &bad)) {
    if (row.step > step) continue;
    kept += csv_line(row);
    rows.push_back(row);
  }
  move_bad_lines(csv, bad);
  const fs::path jsonl = version(out_dir, "jsonl", n) / "metrics.jsonl";
  std::error_code error;
  if (loggers.has(Logger::jsonl) && fs::exists(jsonl, error)) {
    bad.clear();
    const std::string lines = lines_until(jsonl, step, bad);
    move_bad_lines(jsonl, bad);
    write_text(jsonl, lines);
  }
  write_text(csv, kept);
  MetricsLog log(std::make_shared<Files>(loggers, out_dir, n, labels, step));
  for (const auto& sink : log.files_->sinks) sink->catch_up(rows);
  return log;
}

std::function<void()> MetricsLog::sync_later() const {
  return [files = files_] { files->sync(); };
}

const fs::path& MetricsLog::csv_path() const {
  return files_->csv.path();
}

const fs::path& MetricsLog::path() const {
  return files_->sinks.empty() ? files_->csv.path() : files_->sinks[0]->path();
}

void MetricsLog::write(const MetricsRow& row) {
  files_->csv.append(csv_line(row));
  for (const auto& sink : files_->sinks) sink->write(row);
}

bool MetricsLog::finish(RunEnd end, std::span<const fs::path> files, const StopAsked& stopped) {
  for (const auto& sink : files_->sinks) sink->finish(end, files);
  bool all = true;
  for (const auto& sink : files_->sinks) all = sink->deliver(stopped) && all;
  return all;
}

}  // namespace capstan
