#include "base/log.h"

#include <poll.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "base/terminal.h"
#include "base/visible.h"

namespace capstan::log {
namespace {

using Clock = std::chrono::steady_clock;

// Gives the reader of a pipe time to print what it has read.
constexpr auto kMoment = std::chrono::milliseconds(100);
constexpr const char* kErase = "\r\x1b[2K";

spdlog::logger& errors() {
  static const auto instance = [] {
    auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
    if (!may_colour()) sink->set_color_mode(spdlog::color_mode::never);
    auto made = std::make_shared<spdlog::logger>("capstan", sink);
    made->set_pattern("%^%v%$");
    return made;
  }();
  return *instance;
}

// Returns 0, or the error.
int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // another process on the same terminal set it
      pollfd ready{fd, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

bool is_pipe(int fd) {
  struct stat s {};
  return ::fstat(fd, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode));
}

// The state of the screen, current and wanted. All calls hold the lock.
class Screen {
 public:
  void say(std::string_view line) {
    const bool terminal = ::isatty(STDOUT_FILENO) == 1;
    const bool read_by_another = !terminal && !reader_gone_ && is_pipe(STDOUT_FILENO);
    if (terminal || read_by_another) erase();
    std::fflush(stdout);  // flush earlier prints first
    lost(write_all(STDOUT_FILENO, fmt::format("{}\n", line)));
    if (read_by_another) last_read_ = Clock::now();
    if (terminal) redraw();
  }

  void print(spdlog::level::level_enum level, std::string_view line) {
    erase();
    errors().log(level, line);
    redraw();
  }

  void draw(std::string_view text) {
    bar_ = text;
    if (Clock::now() - last_read_ < kMoment) return;
    show(kErase + bar_);
    visible_ = true;
  }

  void end(const char* how) {
    if (visible_) show(how);
    visible_ = false;
    bar_.clear();
  }

 private:
  static void show(std::string_view text) { write_all(STDERR_FILENO, text); }

  void erase() {
    if (visible_) show(kErase);
    visible_ = false;
  }
  void redraw() {
    if (!bar_.empty()) draw(std::string(bar_));
  }

  void lost(int error) {
    // The reader is gone: a program that has read enough, or a closed terminal.
    reader_gone_ = error == EPIPE || error == EIO || error == EBADF;
    if (error == 0 || reader_gone_ || warned_) return;
    warned_ = true;
    print(spdlog::level::warn,
          fmt::format(
              "warning: standard output: cannot write: {}; lines are lost, but the run continues",
              std::strerror(error)));
  }

  std::string bar_;       // its text; empty: no bar
  bool visible_ = false;  // it is visible
  bool reader_gone_ = false, warned_ = false;
  Clock::time_point last_read_ = Clock::now() - 2 * kMoment;  // of the last line to a pipe
};

// The one screen, locked while the result lives.
struct Locked {
  std::unique_lock<std::mutex> lock;
  Screen* screen;
  Screen* operator->() const { return screen; }
};
Locked screen() {
  static std::mutex mutex;
  static Screen only;
  return {std::unique_lock(mutex), &only};
}

thread_local bool t_quiet = false;

}  // namespace

Quiet::Quiet(bool quiet) : before_(t_quiet) {
  t_quiet = t_quiet || quiet;
}
Quiet::~Quiet() {
  t_quiet = before_;
}

void say_line(std::string_view line) {
  if (!t_quiet) screen()->say(visible(line));
}

void info_line(std::string_view line) {
  if (!t_quiet) screen()->print(spdlog::level::info, visible(line));
}

void warn_line(std::string_view line) {
  if (!t_quiet) screen()->print(spdlog::level::warn, fmt::format("warning: {}", visible(line)));
}

void draw_bar(std::string_view text) {
  if (!t_quiet) screen()->draw(text);
}

void end_bar() {
  if (!t_quiet) screen()->end("\n");
}

void clear_bar() {
  if (!t_quiet) screen()->end(kErase);
}

}  // namespace capstan::log
