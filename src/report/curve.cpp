#include "report/curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "report/axis.h"
#include "report/markup.h"

namespace capstan {
namespace {

constexpr std::array kPalette{"#2f81f7", "#e36209", "#2da44e", "#8957e5", "#d1242f", "#1b8f8f"};
constexpr const char *kText = "#6e7781", *kGrid = "#8b949e";
constexpr int kBottom = 40, kCharacter = 7, kLegendRow = 18;

struct Point {
  double x, y;
};

bool drawable(double v) {
  return std::abs(v) <= 1e30;  // false for NaN
}

std::vector<Point> points_of(const Series& s) {
  std::vector<Point> points;
  for (size_t i = 0; i < std::min(s.x.size(), s.y.size()); ++i)
    if (drawable(s.x[i]) && drawable(s.y[i])) points.push_back({s.x[i], s.y[i]});
  return points;
}

// Thins out points to at most `limit`: keeps both ends, and the lowest and highest point of each
// interval between them.
std::vector<Point> thinned(const std::vector<Point>& all, size_t limit) {
  if (all.size() <= limit) return all;
  const size_t intervals = (limit - 2) / 2;
  std::vector<Point> kept{all.front()};
  const auto by_y = [](const Point& a, const Point& b) { return a.y < b.y; };
  const size_t inner = all.size() - 2;
  for (size_t i = 0; i < intervals; ++i) {
    const auto begin = all.begin() + 1 + static_cast<ptrdiff_t>(inner * i / intervals);
    const auto end = all.begin() + 1 + static_cast<ptrdiff_t>(inner * (i + 1) / intervals);
    const auto [low, high] = std::minmax_element(begin, end, by_y);
    kept.push_back(*std::min(low, high));
    if (low != high) kept.push_back(*std::max(low, high));
  }
  kept.push_back(all.back());
  return kept;
}

struct Range {
  double low = HUGE_VAL, high = -HUGE_VAL;
  bool whole = true;

  void include(double v) {
    low = std::min(low, v);
    high = std::max(high, v);
    whole = whole && v == std::floor(v);
  }
  bool empty() const { return low > high; }
  // An axis without values runs from 0 to 1.
  Axis axis(int count, bool snug, bool whole_ticks) const {
    return empty() ? Axis{0, 1, 0.2} : make_axis(low, high, count, snug, whole_ticks);
  }
};

// Draws one chart; each call appends one part.
class Drawing {
 public:
  explicit Drawing(const Chart& chart) : chart_(chart) {
    const bool narrow = chart.width < 500;
    left_edge_ = narrow ? 44 : 56;
    Range x, left, right;
    for (size_t i = 0; i < chart.series.size(); ++i) {
      const Series& s = chart.series[i];
      colours_.push_back(s.colour.empty() ? kPalette[i % kPalette.size()] : s.colour);
      points_.push_back(thinned(points_of(s), narrow ? 400 : 1000));
      for (const Point& p : points_.back()) {
        x.include(p.x);
        (s.right_axis ? right : left).include(p.y);
      }
    }
    has_right_ = !right.empty();
    if (has_right_) right.include(0);
    x_ = x.axis(narrow ? 4 : 8, true, x.whole);
    left_ = left.axis(6, false, false);
    right_ = right.axis(6, false, false);
    bottom_ = chart.height - kBottom;
    end_ = chart.width - (has_right_ ? (narrow ? 50 : left_edge_) : 20);
    place_legend();
    top_ = 74 + kLegendRow * (legend_rows_ - 1);
  }

  std::string draw() {
    const std::string title = escape_markup(chart_.title);
    out_ = std::string(kChartBegin);
    out_ += fmt::format(
        " viewBox=\"0 0 {0} {1}\" "
        "width=\"{0}\" height=\"{1}\" role=\"img\" font-family=\"system-ui, sans-serif\" "
        "font-size=\"12\">\n<title>{2}</title>\n",
        chart_.width, chart_.height, title);
    text(left_edge_, 20, "start", title, kText, " font-size=\"15\" font-weight=\"600\"");
    legend();
    scales();
    for (const bool right : {true, false})  // below the faint lines
      for (size_t i = 0; i < points_.size(); ++i)
        if (chart_.series[i].right_axis == right) series(i);
    return out_ + "</svg>\n";
  }

 private:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    out_ += fmt::format(format, std::forward<Args>(args)...);
  }
  double px(double x) const { return left_edge_ + x_.fraction(x) * (end_ - left_edge_); }
  double py(const Axis& axis, double y) const {
    return bottom_ - axis.fraction(y) * (bottom_ - top_);
  }

  void text(double x, double y, const char* anchor, const std::string& escaped,
            std::string_view colour, std::string_view more = "") {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n", x, y,
        anchor, colour, more, escaped);
  }

  struct LegendEntry {
    size_t series;
    int x, row;
  };
  // From left to right; wraps to the next row when one is full.
  void place_legend() {
    int x = left_edge_;
    for (size_t i = 0; i < points_.size(); ++i) {
      const std::string& name = chart_.series[i].name;
      if (points_[i].empty() || name.empty()) continue;
      const int width = 22 + kCharacter * static_cast<int>(name.size());
      if (x > left_edge_ && x + width > chart_.width) {
        x = left_edge_;
        ++legend_rows_;
      }
      legend_.push_back({i, x, legend_rows_ - 1});
      x += width + 22;
    }
  }

  void legend() {
    for (const auto& [i, x, row] : legend_) {
      const Series& s = chart_.series[i];
      const int y = 38 + kLegendRow * row;
      if (s.stroke == Stroke::points)
        add("<circle cx=\"{}\" cy=\"{}\" r=\"3.5\" fill=\"{}\"/>\n", x + 8, y, colours_[i]);
      else
        add("<line x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\"{}/>\n", x, x + 16, y, y,
            colours_[i], style(s));
      text(x + 22, y + 4, "start", escape_markup(s.name), kText);
    }
  }

  void scales() {
    for (const double tick : left_.ticks()) {
      const double y = py(left_, tick);
      add("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
          "stroke-opacity=\"0.25\"/>\n",
          left_edge_, end_, y, y, kGrid);
      text(left_edge_ - 8, y + 4, "end", left_.label(tick), kText);
    }
    for (const double tick : x_.ticks()) {
      add("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\" "
          "stroke=\"{3}\"/>\n",
          px(tick), bottom_, bottom_ + 5, kGrid);
      text(px(tick), bottom_ + 18, "middle", x_.label(tick), kText);
    }
    add("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\" stroke=\"{}\"/>\n",
        left_edge_, end_, bottom_, bottom_, kGrid);
    text(end_, bottom_ + 34, "end", escape_markup(chart_.x_label), kText);
    text(left_edge_ - 8, top_ - 12, "end", escape_markup(chart_.y_label), kText);
    if (!has_right_) return;
    for (const double tick : right_.ticks())
      text(end_ + 8, py(right_, tick) + 4, "start", right_.label(tick), kGrid);
    text(chart_.width - 4, top_ - 12, "end", escape_markup(chart_.right_label), kGrid);
  }

  static std::string style(const Series& s) {
    const bool thin = s.stroke != Stroke::line;
    return fmt::format(" stroke-width=\"{}\" stroke-opacity=\"{}\"", thin ? "1" : "2",
                       s.right_axis ? "0.6" : (thin ? "0.45" : "1"));
  }

  void series(size_t i) {
    const Series& s = chart_.series[i];
    const Axis& axis = s.right_axis ? right_ : left_;
    std::string path;
    for (const Point& p : points_[i]) path += fmt::format("{:.1f},{:.1f} ", px(p.x), py(axis, p.y));
    if (points_[i].size() > 1)
      add("<polyline class=\"series\" fill=\"none\" stroke=\"{}\" stroke-linejoin=\"round\"{} "
          "points=\"{}\"/>\n",
          colours_[i], style(s), path.substr(0, path.size() - 1));
    if (points_[i].size() > 1 && s.stroke != Stroke::points) return;
    for (const Point& p : points_[i])
      add("<circle class=\"series\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", px(p.x),
          py(axis, p.y), colours_[i]);
  }

  const Chart& chart_;
  std::vector<std::vector<Point>> points_;
  std::vector<std::string> colours_;  // of each series
  Axis x_, left_, right_;
  bool has_right_ = false;
  std::vector<LegendEntry> legend_;
  int legend_rows_ = 1;
  int left_edge_ = 0, top_ = 0, bottom_ = 0, end_ = 0;  // of the plot, in pixels
  std::string out_;
};

}  // namespace

std::string chart_svg(const Chart& chart) {
  return Drawing(chart).draw();
}

std::vector<double> smoothed(const std::vector<double>& values, double span) {
  const double keep = 1 - 2 / (std::max(1.0, span) + 1);
  struct Mean {
    double sum = 0, weight = 0;
  };
  std::vector<Mean> around(values.size());
  // One pass from each side (a step of SIZE_MAX wraps, so it goes back by one); only the first
  // counts the value itself.
  const auto sweep = [&](size_t begin, size_t end, size_t step, bool itself) {
    Mean m;
    for (size_t i = begin; i != end; i += step) {
      const bool counts = drawable(values[i]);
      const Mean before{keep * m.sum, keep * m.weight};
      m = {before.sum + (counts ? values[i] : 0), before.weight + (counts ? 1 : 0)};
      around[i].sum += itself ? m.sum : before.sum;
      around[i].weight += itself ? m.weight : before.weight;
    }
  };
  sweep(0, values.size(), 1, true);
  sweep(values.size() - 1, SIZE_MAX, SIZE_MAX, false);
  std::vector<double> result;
  for (const Mean& m : around) result.push_back(m.sum / m.weight);
  return result;
}

Chart loss_chart(const std::vector<MetricsRow>& rows, const std::string& title) {
  constexpr size_t kEnoughToSmooth = 20;
  Series loss{.name = "loss"}, smooth{.name = "smoothed"};
  Series held_out{.name = "validation", .stroke = Stroke::points};
  Series rate{.name = "learning rate", .stroke = Stroke::thin, .right_axis = true};
  const auto add = [](Series& s, int64_t step, const std::optional<double>& value) {
    if (!value) return;
    s.x.push_back(static_cast<double>(step));
    s.y.push_back(*value);
  };
  for (const MetricsRow& row : rows) {
    add(loss, row.step, row.loss);
    add(held_out, row.step, row.val_loss);
    add(rate, row.step, row.learning_rate);
  }
  Chart chart{.title = title, .right_label = "learning rate"};
  loss.colour = smooth.colour = kPalette[0];
  held_out.colour = kPalette[1];
  rate.colour = kGrid;
  if (loss.y.size() >= kEnoughToSmooth) {
    loss.stroke = Stroke::thin;
    smooth.x = loss.x;
    smooth.y = smoothed(loss.y, static_cast<double>(loss.y.size()) / 60);
  }
  chart.series = {loss, smooth, held_out, rate};
  return chart;
}

}  // namespace capstan
