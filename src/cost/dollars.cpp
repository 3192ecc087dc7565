#include "cost/dollars.h"

#include <fmt/format.h>

#include <cmath>

#include "base/units.h"

namespace capstan {

std::string format_dollars(double dollars) {
  if (!std::isfinite(dollars)) return "?";
  const double size = std::abs(dollars);
  const char* const sign = dollars < 0 ? "-" : "";
  // The thresholds are where rounding carries over: $999,700 is $1.00M, not $1000k.
  if (size < 99.995) return fmt::format("{}${:.2f}", sign, size);
  if (size < 99'999.5) return fmt::format("{}${}", sign, format_grouped(std::llround(size)));
  if (size < 999'500) return fmt::format("{}${:.0f}k", sign, size / 1e3);
  if (size < 999.5e6) return fmt::format("{}${:.{}f}M", sign, size / 1e6, size < 99.995e6 ? 2 : 0);
  return fmt::format("{}${:.2f}B", sign, size / 1e9);
}

std::string format_dollars(const Dollars& dollars) {
  const std::string low = format_dollars(dollars.low), high = format_dollars(dollars.high);
  const std::string expected = format_dollars(dollars.expected);
  return low == high ? expected : fmt::format("{} ({} to {})", expected, low, high);
}

}  // namespace capstan
