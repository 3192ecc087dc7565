#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

// Lines for the user. A run's own output goes to stdout (say); notes next to a result on stdout
// (info), warnings and the bar go to stderr. Each line is written, unbuffered, before the call
// returns; control characters other than newline and tab are shown as escapes (base/visible.h).
// Thread safe.
namespace capstan::log {

// A failing stdout does not stop the run: a reader that went away (`| head -1`) is ignored; any
// other error (a full disk) gives one warning. SIGPIPE must be ignored.
void say_line(std::string_view line);
void info_line(std::string_view line);
void warn_line(std::string_view line);

// A line that stays below all others, on stderr. Each call redraws it. Only for a terminal. If
// stdout is a pipe, its reader may write to the same terminal (`| tee log`); then lines clear the
// bar, and it reappears shortly after the last of them.
void draw_bar(std::string_view text);
// Keeps the bar on screen and moves to the next line; does nothing without a bar.
void end_bar();
// Removes it.
void clear_bar();

// While it lives, this thread writes nothing: for ranks other than the first.
class Quiet {
 public:
  explicit Quiet(bool quiet = true);
  ~Quiet();
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  bool before_;
};

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_line(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  info_line(fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  warn_line(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace capstan::log
