#include "report/curve.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

#include "report/axis.h"
#include "report/markup.h"
#include "report/well_formed.h"

namespace capstan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<MetricsRow> falling(int64_t n) {
  std::vector<MetricsRow> rows;
  for (int64_t i = 1; i <= n; ++i) {
    MetricsRow r;
    r.step = i;
    r.loss = 2 + std::exp(-static_cast<double>(i) / 20) + 0.1 * static_cast<double>(i % 3);
    r.learning_rate = 1e-4;
    if (i % 10 == 0) r.val_loss = *r.loss + 0.1;
    rows.push_back(r);
  }
  return rows;
}

// The points of the n-th line of a drawing.
std::vector<std::pair<double, double>> points_of(const std::string& svg, size_t n) {
  size_t at = 0;
  for (size_t i = 0; i <= n; ++i) at = svg.find("<polyline", at) + 1;
  at = svg.find("points=\"", at) + 8;
  std::istringstream in(svg.substr(at, svg.find('"', at) - at));
  std::vector<std::pair<double, double>> points;
  double x = 0, y = 0;
  char comma = 0;
  while (in >> x >> comma >> y) points.emplace_back(x, y);
  return points;
}

void expect_sound(const std::string& svg) {
  EXPECT_EQ(fault_in_markup(svg), "") << svg.substr(0, 400);
  for (const char* bad : {"\"nan", "\"inf", ",nan", ",inf", "-nan", "<script", "href"})
    EXPECT_EQ(svg.find(bad), std::string::npos) << bad;
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
}

TEST(LossCurve, HasTheLossItsSmoothedCourseTheValidationsAndTheRate) {
  const std::string svg = chart_svg(loss_chart(falling(60), "Loss"));
  expect_sound(svg);
  for (const char* name : {">loss<", ">smoothed<", ">validation<", ">learning rate<", ">step<"})
    EXPECT_NE(svg.find(name), std::string::npos) << name;
  EXPECT_EQ(count_of(svg, "<polyline"), 4u) << "rate, loss, smoothed, between the validations";
  EXPECT_EQ(count_of(svg, "<circle class"), 6u) << "validations";
}

TEST(LossCurve, IsDrawnForNoRowsOneAndTwo) {
  for (const int64_t n : {0, 1, 2}) {
    const std::string svg = chart_svg(loss_chart(falling(n), "Loss"));
    expect_sound(svg);
    EXPECT_EQ(count_of(svg, "<circle class"), n == 1 ? 2u : 0u) << "a line of one point is a dot";
    EXPECT_EQ(svg.find(">smoothed<"), std::string::npos) << "nothing to smooth";
  }
}

TEST(LossCurve, LeavesOutWhatIsNotFinite) {
  std::vector<MetricsRow> rows = falling(30);
  rows[3].loss = kNaN;
  rows[7].loss = std::numeric_limits<double>::infinity();
  rows[9].val_loss = kNaN;
  rows[11].loss = 1e308;
  rows[12].loss = -1e308;
  expect_sound(chart_svg(loss_chart(rows, "Loss")));
  for (MetricsRow& row : rows) row.loss = row.val_loss = row.learning_rate = kNaN;
  expect_sound(chart_svg(loss_chart(rows, "Loss")));
}

TEST(Chart, OfManyPointsKeepsAThousandAndTheExtremes) {
  Series s{.name = "many"};
  for (int i = 0; i < 100000; ++i) {
    s.x.push_back(i);
    s.y.push_back(std::sin(i * 0.37));
  }
  s.y[31234] = 9;
  s.y[77777] = -7;
  const std::string svg = chart_svg({.title = "t", .series = {s}});
  const auto points = points_of(svg, 0);
  EXPECT_LE(points.size(), 1000u);
  EXPECT_GE(points.size(), 900u);
  double top = 1e9, bottom = 0;
  for (size_t i = 0; i < points.size(); ++i) {
    top = std::min(top, points[i].second);
    bottom = std::max(bottom, points[i].second);
    EXPECT_GE(points[i].first, points[i > 0 ? i - 1 : 0].first);
  }
  // The axis goes from -10 to 10 in 306 pixels below 74; extremes at 9 and -7.
  EXPECT_NEAR(top, 74 + 306 * 1 / 20.0, 0.1);
  EXPECT_NEAR(bottom, 74 + 306 * 17 / 20.0, 0.1);
  EXPECT_DOUBLE_EQ(points.front().first, 56);
  EXPECT_DOUBLE_EQ(points.back().first, 840);
}

TEST(Chart, ComparesSeveralSeriesInColoursOfTheirOwn) {
  const Series a{.name = "ours", .x = {0, 1}, .y = {3, 2}};
  const Series b{.name = "theirs", .x = {0, 1}, .y = {3, 2.1}};
  const std::string svg = chart_svg({.title = "two", .series = {a, b}});
  expect_sound(svg);
  for (const char* what : {">ours<", ">theirs<", "#2f81f7", "#e36209"})
    EXPECT_NE(svg.find(what), std::string::npos) << what;
}

TEST(Chart, OfAPhonesWidthHasFewerTicksAndALegendInRows) {
  Chart chart = loss_chart(falling(3000), "Loss");
  const std::string wide = chart_svg(chart);
  chart.width = kNarrowWidth;
  chart.height = kNarrowHeight;
  const std::string narrow = chart_svg(chart);
  expect_sound(narrow);
  // Labels of the steps are 40 pixels wide, and the axis has room for six.
  EXPECT_LE(count_of(narrow, "text-anchor=\"middle\""), 5u);
  EXPECT_GE(count_of(narrow, "text-anchor=\"middle\""), 2u);
  EXPECT_GT(count_of(wide, "text-anchor=\"middle\""), 5u);
  EXPECT_NE(wide.find("y=\"42.0\" text-anchor=\"start\" fill=\"#6e7781\">learning rate<"),
            std::string::npos)
      << "all in one row";
  EXPECT_NE(narrow.find("y=\"60.0\" text-anchor=\"start\" fill=\"#6e7781\">learning rate<"),
            std::string::npos)
      << "the next row";
  for (size_t line = 0; line < 4; ++line) EXPECT_LE(points_of(narrow, line).size(), 400u);
  for (const auto& [x, y] : points_of(narrow, 1)) {
    EXPECT_GE(x, 0);
    EXPECT_LE(x, kNarrowWidth);
    EXPECT_GE(y, 74 + 18 - 0.1) << "below the legend";
  }
}

TEST(Chart, EscapesItsTexts) {
  const Series s{.name = "a<b>&\"c'", .x = {0, 1}, .y = {1, 2}};
  const std::string svg =
      chart_svg({.title = "<script>&", .x_label = "<x>", .y_label = "&y", .series = {s}});
  expect_sound(svg);
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;&quot;c&#39;"), std::string::npos);
  EXPECT_NE(svg.find("<title>&lt;script&gt;&amp;</title>"), std::string::npos);
}

TEST(Smoothed, IsTheMeanAroundEachValue) {
  EXPECT_TRUE(smoothed({}, 5).empty());
  for (const double v : smoothed(std::vector<double>(50, 3.0), 10)) EXPECT_NEAR(v, 3, 1e-12);
  // span 3: weights 1, 1/2, 1/4 to both sides.
  const auto s = smoothed({0, 0, 8, 0, 0}, 3);
  const double all = 1 + 2 * (0.5 + 0.25);
  EXPECT_NEAR(s[2], 8 / all, 1e-12);
  EXPECT_NEAR(s[1], 8 * 0.5 / (1 + 0.5 + 0.5 + 0.25 + 0.125), 1e-12);
  EXPECT_NEAR(s[1], s[3], 1e-12) << "it does not lag";
}

TEST(Smoothed, PassesOverWhatIsNotFinite) {
  const auto s = smoothed({1, kNaN, 3}, 1e9);
  EXPECT_NEAR(s[1], 2, 1e-6);
  EXPECT_TRUE(std::isnan(smoothed({kNaN}, 3)[0]));
}

TEST(Axis, HasRoundTicksThatCoverTheValues) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{{0.93, 2.71},
                                                                        {-3, 17},
                                                                        {0, 2e-4},
                                                                        {1e-9, 1e-8},
                                                                        {2, 2},
                                                                        {0, 0},
                                                                        {-1e30, 1e30},
                                                                        {1e6, 1e6 + 1e-9}}) {
    const Axis axis = make_axis(low, high, 6, false, false);
    const auto ticks = axis.ticks();
    ASSERT_GE(ticks.size(), 2u) << low << " " << high;
    ASSERT_LE(ticks.size(), 14u) << low << " " << high;
    EXPECT_LE(axis.low, low + 1e-6 * axis.step);
    EXPECT_GE(axis.high, high - 1e-6 * axis.step);
    const double first = axis.step / std::pow(10, std::floor(std::log10(axis.step) + 1e-9));
    EXPECT_TRUE(std::abs(first - 1) < 1e-6 || std::abs(first - 2) < 1e-6 ||
                std::abs(first - 5) < 1e-6)
        << axis.step;
  }
}

TEST(Axis, OfStepsHasNoTicksBetweenThem) {
  for (const double high : {1.0, 2.0, 3.0, 7.0})
    for (const double tick : make_axis(0, high, 8, true, true).ticks())
      EXPECT_EQ(tick, std::round(tick)) << high;
}

TEST(Axis, LabelsAreShort) {
  const auto label = [](double step, double tick) { return Axis{0, 1, step}.label(tick); };
  EXPECT_EQ(label(0.5, 2.5), "2.5");
  EXPECT_EQ(label(0.05, 1), "1.00");
  EXPECT_EQ(label(50, 150), "150");
  EXPECT_EQ(label(1, 0), "0");
  EXPECT_EQ(label(20000, 40000), "40k");
  EXPECT_EQ(label(500000, 1500000), "1.5M");
  EXPECT_EQ(label(5e-5, 1.5e-4), "1.5e-4");
  EXPECT_EQ(label(1e-4, 1e-3), "1e-3");
}

TEST(EscapeMarkup, LeavesNothingThatMarkupCouldTakeForItsOwn) {
  EXPECT_EQ(escape_markup("a & b < c > d \" e '"), "a &amp; b &lt; c &gt; d &quot; e &#39;");
  EXPECT_EQ(escape_markup("größer 山\n\tx"), "größer 山\n\tx");
  EXPECT_EQ(escape_markup(std::string("a\0b\x1b[2K\x7f", 8)), "a\ufffdb\ufffd[2K\ufffd");
  EXPECT_EQ(escape_markup("cut \xe5\xb1"), "cut \ufffd");
}

TEST(FaultInMarkup, FindsFaults) {
  EXPECT_EQ(fault_in_markup("<a b=\"c\"><d/>x &amp; y</a>"), "");
  for (const char* bad :
       {"<a>", "</a>", "<a><b></a></b>", "<a b=c></a>", "<a>&</a>", "<a>x > y</a>", "<a>x < y</a>",
        "<a b=\"1\" b=\"2\"/>", "<a b=\"<\"/>", "<a"})
    EXPECT_NE(fault_in_markup(bad), "") << bad;
}

}  // namespace
}  // namespace capstan
