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
#include "base/log.h"
#include "report/metrics.h"
#include "report/tensorboard.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEventFile = "events.out.tfevents.";

// A file that grows by whole lines or records: a partial write is rolled back.
class GrowingFile {
 public:
  GrowingFile(fs::path path, int flags) : path_(std::move(path)) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    fd_ = ::open(path_.c_str(), kFlags | flags, kUsualMode);
    require(fd_ >= 0, Fault::file, "{}: cannot write: {}", path_.string(), std::strerror(errno));
  }
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile() { ::close(fd_); }

  const fs::path& path() const { return path_; }
  int64_t size() const { return ::lseek(fd_, 0, SEEK_END); }

  void append(std::string_view text) {
    const int64_t before = size();
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        const std::string cause = std::strerror(errno);
        const bool whole = ::ftruncate(fd_, before) == 0;
        fail(Fault::file, "{}: cannot write: {}{}; free some space and resume the run",
             path_.string(), cause, whole ? "" : " (its last line is incomplete)");
      }
      text.remove_prefix(static_cast<size_t>(n));
    }
  }

  void sync() const {
    int result;
    do result = ::fsync(fd_);
    while (result != 0 && errno == EINTR);
    require(result == 0 || errno == EINVAL || errno == ENOTSUP, Fault::file,
            "{}: cannot write: {}; check the disk and resume the run", path_.string(),
            std::strerror(errno));
  }

 private:
  fs::path path_;
  int fd_ = -1;
};

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
    const auto row = nlohmann::json::parse(line, nullptr, false);
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

// Moves lines that are not rows to another file, with a warning.
void move_bad_lines(const fs::path& file, const std::vector<BadLine>& lines) {
  if (lines.empty()) return;
  constexpr size_t kShown = 3;
  GrowingFile aside(fs::path(file) += ".bad", 0);
  for (const BadLine& line : lines) aside.append(line.text + "\n");
  aside.sync();
  for (size_t i = 0; i < std::min(kShown, lines.size()); ++i)
    log::warn("{}; moved the line to {}", lines[i].why, aside.path().string());
  if (lines.size() > kShown)
    log::warn("moved {} more lines to {}", lines.size() - kShown, file.string());
}

bool is_ours(const fs::path& csv) {
  std::error_code error;
  return fs::is_regular_file(csv, error) && read_text(csv, std::numeric_limits<int64_t>::max())
                                                .starts_with(std::string(kMetricsColumns) + "\n");
}

}  // namespace

struct MetricsLog::Files {
  Files(Logger kind, const fs::path& out_dir, int64_t n)
      : logger(kind), csv(version(out_dir, "csv", n) / "metrics.csv", 0) {
    const fs::path folder = version(out_dir, name_of(logger), n);
    if (csv.size() == 0) csv.append(std::string(kMetricsColumns) + "\n");
    if (logger == Logger::csv) return;
    make_folder(folder);
    if (logger == Logger::jsonl) {
      other = std::make_unique<GrowingFile>(folder / "metrics.jsonl", 0);
    } else {
      other = std::make_unique<GrowingFile>(next_event_file(folder), O_EXCL);
      other->append(version_event(wall_time()));
    }
  }

  void sync() {
    const std::array<const GrowingFile*, 2> files{&csv, other.get()};
    for (const GrowingFile* file : files) {
      if (file == nullptr) continue;
      file->sync();
      if (named) continue;
      fs::path folder = file->path().parent_path();  // logs/LOGGER/version_N
      for (int i = 0; i < 3; ++i, folder = folder.parent_path()) sync_folder(folder);
    }
    named = true;
  }

  Logger logger;
  GrowingFile csv;
  std::unique_ptr<GrowingFile> other;  // none for Logger::csv
  std::atomic<bool> named = false;     // the folders are flushed to disk
};

MetricsLog::MetricsLog(std::shared_ptr<Files> files) : files_(std::move(files)) {}
MetricsLog::MetricsLog(MetricsLog&&) noexcept = default;
MetricsLog& MetricsLog::operator=(MetricsLog&&) noexcept = default;
MetricsLog::~MetricsLog() = default;

MetricsLog::MetricsLog(Logger logger, const fs::path& out_dir)
    : files_(std::make_shared<Files>(logger, out_dir, new_version(out_dir))) {}

MetricsLog MetricsLog::resume(Logger logger, const fs::path& out_dir, int64_t step) {
  const int64_t n = highest(out_dir / "logs" / "csv", "version_", true);
  const fs::path csv = version(out_dir, "csv", n) / "metrics.csv";
  if (n < 0 || !is_ours(csv)) return {logger, out_dir};
  std::vector<BadLine> bad;
  std::string kept = std::string(kMetricsColumns) + "\n";
  for (const MetricsRow& row : read_metrics(csv, &bad))
    if (row.step <= step) kept += csv_line(row);
  move_bad_lines(csv, bad);
  const fs::path jsonl = version(out_dir, "jsonl", n) / "metrics.jsonl";
  std::error_code error;
  if (logger == Logger::jsonl && fs::exists(jsonl, error)) {
    bad.clear();
    const std::string lines = lines_until(jsonl, step, bad);
    move_bad_lines(jsonl, bad);
    write_text(jsonl, lines);
  }
  write_text(csv, kept);
  MetricsLog log(std::make_shared<Files>(logger, out_dir, n));
  if (logger == Logger::tensorboard)
    log.files_->other->append(restart_event(wall_time(), step + 1));
  return log;
}

std::function<void()> MetricsLog::sync_later() const {
  return [files = files_] { files->sync(); };
}

const fs::path& MetricsLog::csv_path() const {
  return files_->csv.path();
}

const fs::path& MetricsLog::path() const {
  return files_->other ? files_->other->path() : files_->csv.path();
}

void MetricsLog::write(const MetricsRow& row) {
  files_->csv.append(csv_line(row));
  if (files_->logger == Logger::jsonl) files_->other->append(jsonl_line(row));
  if (files_->logger != Logger::tensorboard) return;
  std::vector<Scalar> scalars{{"epoch", static_cast<float>(row.epoch)},
                              {"iter", static_cast<float>(row.iter)},
                              {"total_tokens", static_cast<float>(row.total_tokens)}};
  if (row.tokens > 0) scalars.emplace_back("tokens", static_cast<float>(row.tokens));
  const auto add = [&](std::string_view tag, const std::optional<double>& value) {
    if (value) scalars.emplace_back(tag, static_cast<float>(*value));
  };
  add("iter_time", row.iter_time);
  add("learning_rate", row.learning_rate);
  add("loss", row.loss);
  add("val_loss", row.val_loss);
  add("val_ppl", row.val_ppl());
  add("grad_norm", row.grad_norm);
  files_->other->append(scalars_event(wall_time(), row.step, scalars));
}

}  // namespace capstan
