#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

// Lines for the person who runs the program. What a run tells of itself goes to stdout (say); notes
// beside a result that is on stdout (info), warnings and the bar go to stderr. A line is written,
// not buffered, before the call returns; control characters but newline and tab are shown as
// escapes (base/visible.h). Safe from any thread.
namespace capstan::log {

// A stdout that cannot be written to stops nothing: a reader that went away (`| head -1`) is left
// alone, anything else (a full disk) is warned of once. SIGPIPE must be ignored.
void say_line(std::string_view line);
void info_line(std::string_view line);
void warn_line(std::string_view line);

// A line that stays below all others, on stderr. Each call draws it anew. Only for a terminal.
// Where stdout is a pipe, whose reader may write to the same terminal (`| tee log`), lines clear
// the bar away, and it is drawn no sooner than a moment after the last of them.
void draw_bar(std::string_view text);
// Leaves the bar as it is and goes to the next line; nothing if there is none.
void end_bar();
// Removes it.
void clear_bar();

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
