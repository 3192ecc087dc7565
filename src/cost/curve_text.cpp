#include "cost/curve_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "cost/dollars.h"

namespace capstan {
namespace {

constexpr int kLabel = 9;  // columns of dollars at the left

double highest(const std::vector<CostCurve>& curves) {
  double most = 0;
  for (const CostCurve& curve : curves)
    for (const double dollars : curve.dollars) most = std::max(most, dollars);
  return most;
}

}  // namespace

std::string curve_text(const std::vector<CostCurve>& curves, int width, int height) {
  size_t points = 0;
  for (const CostCurve& curve : curves) points = std::max(points, curve.dollars.size());
  const double most = highest(curves);
  if (points < 2 || most <= 0) return "";
  const int columns = width - kLabel - 3, rows = height - 2;
  std::vector<std::string> canvas(static_cast<size_t>(rows),
                                  std::string(static_cast<size_t>(columns), ' '));
  for (auto curve = curves.rbegin(); curve != curves.rend(); ++curve)
    for (int x = 0; x < columns; ++x) {
      // Between two months the payments go on evenly.
      const double month = static_cast<double>(points - 1) * x / (columns - 1);
      const auto before = std::min(static_cast<size_t>(month), points - 2);
      if (before + 1 >= curve->dollars.size()) continue;
      const double part = month - static_cast<double>(before);
      const double dollars =
          curve->dollars[before] * (1 - part) + curve->dollars[before + 1] * part;
      const auto up = static_cast<size_t>(std::lround(dollars / most * (rows - 1)));
      canvas[static_cast<size_t>(rows) - 1 - up][static_cast<size_t>(x)] = curve->mark;
    }
  std::string text;
  for (int row = 0; row < rows; ++row) {
    // A label at the top, in the middle and at the bottom.
    const bool labelled = row == 0 || row == rows - 1 || row == rows / 2;
    const double dollars = most * (rows - 1 - row) / (rows - 1);
    std::string line = fmt::format("{:>{}} │{}", labelled ? format_dollars(dollars) : "", kLabel,
                                   canvas[static_cast<size_t>(row)]);
    line.resize(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  const std::string last = count(static_cast<int64_t>(points) - 1, "month");
  text += fmt::format("{:>{}} └", "", kLabel);
  for (int x = 0; x < columns; ++x) text += "─";
  return text + fmt::format("\n{:>{}}  0{:>{}}\n", "", kLabel, last, columns - 1);
}

}  // namespace capstan
