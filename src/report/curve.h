#pragma once

#include <string>
#include <vector>

#include "report/metrics.h"

namespace capstan {

enum class Stroke : uint8_t { line, thin, points };

// One line of a chart. Points that are not finite are left out; of more than a thousand (in a
// narrow chart 400), the extremes of each stretch are drawn. x is in ascending order.
struct Series {
  std::string name = {};  // in the legend
  std::vector<double> x = {}, y = {};
  Stroke stroke = Stroke::line;
  std::string colour = {};  // "#2f81f7"; empty: the next of the palette
  bool right_axis = false;  // drawn faint, against the scale at the right
};

struct Chart {
  std::string title = {};
  std::string x_label = "step", y_label = "loss";
  std::string right_label = {};
  std::vector<Series> series = {};
  int width = 860, height = 420;
};
// For a phone, where it is shown in its own size: the same letters as the wide one has.
inline constexpr int kNarrowWidth = 340, kNarrowHeight = 300;

// An <svg> element that stands alone or inside a page: no fonts, scripts or links, a transparent
// ground, and colours that can be read on white and on black. Texts are escaped; a legend that is
// wider than the chart takes several rows. A page may restyle it by the classes capstan-chart,
// grid, axis, series.
std::string chart_svg(const Chart& chart);

// The loss of each row (thin), its smoothed course, the validation losses, and the learning rate.
Chart loss_chart(const std::vector<MetricsRow>& rows, const std::string& title);

// The mean of the values around each, with weights that halve every 0.35 × span values to either
// side; values that are not finite are passed over (NaN where there is none at all).
std::vector<double> smoothed(const std::vector<double>& values, double span);

}  // namespace capstan
