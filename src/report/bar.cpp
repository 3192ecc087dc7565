#include "report/bar.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>

namespace capstan {

std::string block_bar(double fraction, int width) {
  static constexpr std::array<const char*, 8> kEighths{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const double filled = fraction >= 1 ? 1 : (fraction > 0 ? fraction : 0);
  const int eighths = static_cast<int>(std::lround(filled * width * 8));
  std::string bar;
  for (int i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kEighths[static_cast<size_t>(eighths % 8)];
  const int used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  if (used < width) bar.append(static_cast<size_t>(width - used), ' ');
  return bar;
}

std::string clock_text(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "?";
  const int64_t whole = std::llround(seconds);
  const int64_t h = whole / 3600, m = whole / 60 % 60, s = whole % 60;
  return h > 0 ? fmt::format("{}:{:02}:{:02}", h, m, s) : fmt::format("{:02}:{:02}", m, s);
}

std::string short_count(double n) {
  const char* unit = "";
  for (const char* next : {"k", "M", "G", "T"}) {
    if (n < 999.5) break;
    n /= 1000;
    unit = next;
  }
  return fmt::format("{:.{}f}{}", n, *unit != 0 && n < 99.95 ? 1 : 0, unit);
}

}  // namespace capstan
