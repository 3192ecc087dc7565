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
  // The thresholds are where rounding carries over: 1023.9 KiB is 1.00 MiB, not 1024 KiB.
  size_t power = 0;
  while (power + 1 < N && std::abs(value) >= base - 0.5) {
    value /= base;
    ++power;
  }
  if (power == 0) return fmt::format("{:.0f}{}", value, names[0]);
  const int digits = std::abs(value) < 9.995 ? 2 : (std::abs(value) < 99.95 ? 1 : 0);
  return fmt::format("{:.{}f}{}", value, digits, names[power]);
}

}  // namespace

std::string format_bytes(double bytes) {
  return scaled(bytes, 1024, std::array{" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}

std::string format_count(double count) {
  return scaled(count, 1000, std::array{"", " K", " M", " B", " T"});
}

std::string format_grouped(int64_t n) {
  const std::string digits = fmt::format("{}", n);
  std::string s;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-') s += ',';
    s += digits[i];
  }
  return s;
}

std::string count(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string format_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "?";
  if (seconds < 0.9995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = std::llround(seconds);
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
  require(number * factor >= 1 && number * factor < 9e18, Fault::usage,
          "'{}' is not an amount of memory; write it like 80GiB, 24GB or 512MiB", text);
  return static_cast<int64_t>(number * factor);
}

}  // namespace capstan
