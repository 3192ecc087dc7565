#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

// Lines for the person at the terminal, on stderr; results go to stdout. Safe from any thread.
namespace capstan::log {

enum class Level { quiet, warning, info, debug };

// Lines above this level are dropped. `info` until set.
void set_level(Level level);

// Control characters but newline and tab are shown as escapes (base/visible.h).
void write(Level level, std::string_view text);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace capstan::log
