#include "plan/history.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/calibration.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kHistoryVersion = 1;

// Every key of a line with its field, in the order of the file.
template <class Run, class Body>
void each_field(Run& run, const Body& body) {
  body("date", run.date);
  body("device", run.device);
  body("calibration", run.calibration);
  body("from_data_sheet", run.from_data_sheet);
  body("model", run.model);
  body("precision", run.precision);
  body("mesh", run.mesh);
  body("ranks", run.ranks);
  body("steps", run.steps);
  body("predicted_step_seconds", run.predicted_step_seconds);
  body("measured_step_seconds", run.measured_step_seconds);
  body("predicted_run_seconds", run.predicted_run_seconds);
  body("measured_run_seconds", run.measured_run_seconds);
  body("predicted_bytes", run.predicted_bytes);
  body("measured_bytes", run.measured_bytes);
}

std::string line_of(const PlannedRun& run) {
  ordered_json out = {{"version", kHistoryVersion}};
  each_field(run, [&](const char* key, const auto& field) { out[key] = field; });
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

// Reads the field if the value suits it; otherwise says what was expected.
const char* read(const json& value, std::string& field) {
  if (!value.is_string()) return "a string";
  field = value.get<std::string>();
  return nullptr;
}
const char* read(const json& value, bool& field) {
  if (!value.is_boolean()) return "true or false";
  field = value.get<bool>();
  return nullptr;
}
const char* read(const json& value, double& field) {
  if (!value.is_number() || value.get<double>() < 0) return "a number from 0 on";
  field = value.get<double>();
  return nullptr;
}
template <std::signed_integral Integer>
const char* read(const json& value, Integer& field) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<Integer>::max());
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) return "an integer from 0 on";
  field = value.get<Integer>();
  return nullptr;
}

PlannedRun parse_line(std::string_view line, std::string_view where, int64_t number) {
  const json object = parse_json(line, where, 2, {.line = number});
  const auto refuse = [&](std::string_view key, std::string_view expected, std::string_view found) {
    fail(Fault::file, "{}:{}: {}: expected {}, found {}", where, number, key, expected, found);
  };
  if (!object.is_object()) refuse("the run", "an object", shown(object));
  const auto value_of = [&](const char* key) {
    const auto it = object.find(key);
    if (it == object.end()) refuse(key, "this key", "none");
    return *it;
  };
  if (const json version = value_of("version"); version != kHistoryVersion)
    refuse("version", std::to_string(kHistoryVersion), shown(version));
  PlannedRun run;
  size_t keys = 1;
  each_field(run, [&](const char* key, auto& field) {
    const json value = value_of(key);
    if (const char* expected = read(value, field)) refuse(key, expected, shown(value));
    ++keys;
  });
  if (object.size() != keys)
    refuse("the run", fmt::format("{} keys", keys), std::to_string(object.size()));
  return run;
}

[[noreturn]] void fail_with_errno(const fs::path& path, const char* doing) {
  fail(Fault::file, "{}: cannot {}: {}", path.string(), doing, std::strerror(errno));
}

// The file, open to append and locked against other processes and threads, for as long as the
// object lives. A file system without locks counts as unlocked.
class LockedFile {
 public:
  explicit LockedFile(const fs::path& path) : path_(path) {
    // Another process may replace the file between the two calls: then another one has the name.
    for (int attempt = 0; attempt < 100; ++attempt) {
      constexpr int kFlags = O_RDWR | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC;
      fd_ = ::open(path_.c_str(), kFlags, kUsualMode);
      if (fd_ < 0) fail_with_errno(path_, "open");
      try {
        if (lock()) return;
      } catch (...) {
        ::close(fd_);
        throw;
      }
      ::close(fd_);
    }
    fail(Fault::file, "{}: other processes keep replacing the file", path_.string());
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() { ::close(fd_); }

  // In one write, on a line of its own even if the last one was cut. All of it or nothing.
  void append_line(std::string line) {
    const off_t before = size_;
    char last = '\n';
    if (before > 0 && ::pread(fd_, &last, 1, before - 1) == 1 && last != '\n')
      line.insert(line.begin(), '\n');
    ssize_t n;
    do n = ::write(fd_, line.data(), line.size());
    while (n < 0 && errno == EINTR);
    if (n == std::ssize(line)) return;
    if (n >= 0) errno = ENOSPC;
    const int cause = errno;
    if (::ftruncate(fd_, before) != 0 && n > 0)
      log::warn("{}: the last line is cut", path_.string());
    errno = cause;
    fail_with_errno(path_, "write");
  }

 private:
  // False if the file is no longer the one of that name. Whoever has the lock needs it for
  // milliseconds, unless it is suspended.
  bool lock() {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::seconds(2);
    while (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR)) {
      require(Clock::now() < end, Fault::file, "{}: another process has locked it", path_.string());
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    struct stat mine = {}, named = {};
    if (::fstat(fd_, &mine) != 0) fail_with_errno(path_, "read");
    require(S_ISREG(mine.st_mode), Fault::file, "{}: expected a file", path_.string());
    size_ = mine.st_size;
    return ::stat(path_.c_str(), &named) == 0 && mine.st_dev == named.st_dev &&
           mine.st_ino == named.st_ino;
  }

  const fs::path& path_;
  int fd_ = -1;
  off_t size_ = 0;
};

// Keeps the newer half of too many lines. The file is locked.
void keep_bounded(const fs::path& path) {
  const std::string text = read_text(path);
  if (std::count(text.begin(), text.end(), '\n') <= kMostLines) return;
  size_t begin = text.size();  // of the lines that are kept
  for (int64_t kept = 0; kept < kMostLines / 2; ++kept) begin = text.rfind('\n', begin - 2) + 1;
  write_text(path, std::string_view(text).substr(begin));
}

}  // namespace

std::string label_of(const Calibration& c) {
  return fmt::format("{} of {}", c.name, c.date);
}

std::string history_date(std::chrono::system_clock::time_point time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
}

fs::path history_path() {
  const fs::path folder = cache_folder("calibration");
  return folder.empty() ? fs::path() : folder / "history.jsonl";
}

void append_history(const fs::path& path, const PlannedRun& run) {
  try {
    std::error_code error;
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
    require(!error, Fault::file, "{}: cannot create the folder: {}", path.parent_path().string(),
            error.message());
    LockedFile file(path);
    file.append_line(line_of(run));
    keep_bounded(path);
  } catch (const Error& e) {
    log::warn("the history of runs was not updated: {}", e.what());
  }
}

std::vector<PlannedRun> read_history(const fs::path& path) {
  std::vector<PlannedRun> runs;
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return runs;
  int64_t wrong = 0;
  std::string first_wrong;
  const auto note = [&](const Error& e) {
    if (++wrong == 1) first_wrong = e.what();
  };
  try {
    const std::string text = read_text(path);
    std::string_view rest = text;
    for (int64_t number = 1; !rest.empty(); ++number) {
      const size_t end = rest.find('\n');
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      if (trimmed(line).empty()) continue;
      try {
        runs.push_back(parse_line(line, path.string(), number));
      } catch (const Error& e) {
        // Without its end, another process may be writing it.
        if (end != std::string_view::npos) note(e);
      }
    }
  } catch (const Error& e) {
    note(e);
  }
  if (wrong == 1) log::warn("{}; ignoring this line of the history of runs", first_wrong);
  if (wrong > 1)
    log::warn("{}; ignoring this line and {} more of the history of runs", first_wrong, wrong - 1);
  return runs;
}

}  // namespace capstan
