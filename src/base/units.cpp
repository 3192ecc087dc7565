#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "base/error.h"

namespace capstan {
namespace {

template <size_t N>
std::string scaled(double value, double base, const std::array<const char*, N>& names) {
  size_t power = 0;
  while (power + 1 < N && std::abs(value) >= base) {
    value /= base;
    ++power;
  }
  if (power == 0) return fmt::format("{:.0f}{}", value, names[0]);
  return fmt::format("{:.{}f}{}", value, value < 10 ? 2 : (value < 100 ? 1 : 0), names[power]);
}

}  // namespace

std::string format_bytes(double bytes) {
  return scaled(bytes, 1024, std::array{" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string format_count(double count) {
  return scaled(count, 1000, std::array{"", " K", " M", " B", " T"});
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 1) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 60) return fmt::format("{:.1f} s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

int64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  std::string unit;
  for (; *end != 0; ++end)
    if (!std::isspace(static_cast<unsigned char>(*end)))
      unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*end)));
  double factor = 0;
  if (unit.empty() || unit == "b") factor = 1;
  const std::string prefixes = "kmgtp";
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const std::string p(1, prefixes[i]);
    if (unit == p + "b") factor = std::pow(1000.0, static_cast<double>(i + 1));
    if (unit == p + "ib") factor = std::pow(1024.0, static_cast<double>(i + 1));
  }
  require(factor > 0 && number > 0 && std::isfinite(number * factor) && number * factor < 9e18,
          Fault::usage, "'{}' is not an amount of memory; write it like 80GiB, 24GB or 512MiB",
          text);
  return static_cast<int64_t>(number * factor);
}

}  // namespace capstan
