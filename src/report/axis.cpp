#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace capstan {
namespace {

double round_step(double rough) {
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double first = rough / power;
  if (first <= 1) return power;
  if (first <= 2) return 2 * power;
  return first <= 5 ? 5 * power : 10 * power;
}

// 1.5e-4, where printf's %g has 0.00015 or 1.5e-04.
std::string scientific(double value) {
  int power = static_cast<int>(std::floor(std::log10(std::abs(value))));
  double digits = value / std::pow(10, power);
  if (std::abs(digits) > 9.9995) {
    digits /= 10;
    ++power;
  }
  return fmt::format("{:.4g}e{}", digits, power);
}

}  // namespace

std::vector<double> Axis::ticks() const {
  const double slack = 1e-6 * step;
  const auto first = std::ceil((low - slack) / step);
  const auto count = static_cast<int>(std::floor((high + slack) / step) - first);
  std::vector<double> result;
  for (int i = 0; i <= std::min(count, 50); ++i) result.push_back((first + i) * step);
  return result;
}

std::string Axis::label(double tick) const {
  const double size = std::abs(tick);
  if (size < 1e-6 * step) return "0";
  if (size >= 1e9 || std::max(size, step) < 1e-2) return scientific(tick);
  if (size >= 1e6 && step >= 1e4) return fmt::format("{:.4g}M", tick / 1e6);
  if (size >= 1e4 && step >= 100) return fmt::format("{:.5g}k", tick / 1e3);
  const int digits = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-6)), 0, 9);
  return fmt::format("{:.{}f}", tick, digits);
}

Axis make_axis(double low, double high, int count, bool snug, bool whole) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (!(high - low > 1e-9 * size)) {
    const double room = whole ? 1 : std::max(0.1 * size, 1e-3);
    low -= room;
    high += room;
  }
  double step = round_step((high - low) / count);
  if (whole) step = std::max(step, 1.0);
  if (snug) return {low, high, step};
  return {std::floor(low / step + 1e-9) * step, std::ceil(high / step - 1e-9) * step, step};
}

}  // namespace capstan
