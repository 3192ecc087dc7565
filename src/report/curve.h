#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/metrics.h"

namespace capstan {

enum class Stroke : uint8_t { line, thin, points };

// One line of a chart. Points that are not finite are skipped; beyond 1000 points (400 in a narrow
// chart) only the extremes of each interval are drawn. x is ascending.
struct Series {
  std::string name = {};  // in the legend
  std::vector<double> x = {}, y = {};
  Stroke stroke = Stroke::line;
  std::string colour = {};  // "#2f81f7"; empty: the next palette colour
  bool right_axis = false;  // drawn faint, on the right-hand scale
};

struct Chart {
  std::string title = {};
  std::string x_label = "step", y_label = "loss";
  std::string right_label = {};
  std::vector<Series> series = {};
  int width = 860, height = 420;
};
// For phones, which show it unscaled: with the same letter size as the wide chart.
inline constexpr int kNarrowWidth = 340, kNarrowHeight = 300;

// How every such element begins.
inline constexpr std::string_view kChartBegin =
    "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"capstan-chart\"";

// An <svg> element that works alone or inside a page: no fonts, scripts or links, a transparent
// background, and colours that are readable on white and on black. Texts are escaped; a legend
// wider than the chart wraps. A page may restyle it by the classes capstan-chart, grid, axis,
// series.
std::string chart_svg(const Chart& chart);

// The loss of each row (thin), the smoothed loss, the validation losses, and the learning rate.
Chart loss_chart(const std::vector<MetricsRow>& rows, const std::string& title);

// The weighted mean around each value; weights halve every 0.35 × span values to either side.
// Values that are not finite are skipped (NaN if there is no other).
std::vector<double> smoothed(const std::vector<double>& values, double span);

}  // namespace capstan
