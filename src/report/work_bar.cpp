#include "report/work_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>

#include "base/log.h"
#include "base/process_limits.h"
#include "base/terminal.h"
#include "base/units.h"
#include "report/bar.h"
#include "report/progress.h"

namespace capstan {
namespace {

struct Parts {
  double fraction = 0;
  double rate = 0;  // per second; 0: unknown
  double left = -1;
  std::string unit;  // with a space before it
};

Parts parts_of(const WorkState& s) {
  Parts p;
  const auto done = static_cast<double>(s.done), total = static_cast<double>(s.total);
  p.fraction = std::min(1.0, done / total);
  if (s.elapsed > 0) p.rate = done / s.elapsed;
  if (p.rate > 0) p.left = (total - done) / p.rate;
  if (!s.unit.empty()) p.unit = " " + s.unit;
  return p;
}

std::string rate_text(double rate) {
  return rate > 0 ? short_count(rate) : "?";
}

}  // namespace

std::string work_bar(const WorkState& s, int columns) {
  const auto room = static_cast<size_t>(std::max(0, columns - 1));
  if (s.total <= 0) return fmt::format("{}: [{}]", s.what, clock_text(s.elapsed)).substr(0, room);
  const Parts p = parts_of(s);
  const std::string before = fmt::format("{}: {:3.0f}%|", s.what, std::floor(100 * p.fraction));
  const std::string after =
      fmt::format("| {}/{}{} [{}<{}, {}/s]", short_count(static_cast<double>(s.done)),
                  short_count(static_cast<double>(s.total)), p.unit, clock_text(s.elapsed),
                  clock_text(p.left), rate_text(p.rate));
  const int width = std::min<int>(
      kWidestBar, static_cast<int>(room) - static_cast<int>(before.size() + after.size()));
  if (width >= kNarrowestBar) return before + block_bar(p.fraction, width) + after;
  return (before + after.substr(1)).substr(0, room);
}

std::string work_line(const WorkState& s) {
  if (s.total <= 0) return fmt::format("{}: {} so far", s.what, format_duration(s.elapsed));
  const Parts p = parts_of(s);
  return fmt::format("{}: {:.0f}%, {} of {}{}, {}/s, {} left", s.what, std::floor(100 * p.fraction),
                     short_count(static_cast<double>(s.done)),
                     short_count(static_cast<double>(s.total)), p.unit, rate_text(p.rate),
                     p.left < 0 ? "?" : format_duration(p.left));
}

WorkBar::WorkBar(std::string what, bool shown, Pace pace) : what_(std::move(what)), pace_(pace) {
  if (!shown || process_limits().memory) return;
  try {
    thread_ = std::thread([this] { show(); });
  } catch (const std::system_error&) {  // the work goes on unseen
  }
}

WorkBar::~WorkBar() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_one();
  thread_.join();
}

WorkState WorkBar::state() const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  return {what_, unit_.load(), done_, total_, elapsed.count()};
}

void WorkBar::show() {
  const bool terminal = can_redraw();
  std::unique_lock lock(mutex_);
  const auto ended_after = [&](std::chrono::milliseconds time) {
    return ends_.wait_for(lock, time, [&] { return ended_; });
  };
  if (terminal) {
    if (ended_after(pace_.quiet)) return;
    do log::draw_bar(work_bar(state(), terminal_columns()));
    while (!ended_after(pace_.redraw));
    log::clear_bar();
  } else {
    while (!ended_after(pace_.line)) log::info("{}", work_line(state()));
  }
}

}  // namespace capstan
