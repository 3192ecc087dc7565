#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/terminal.h"
#include "base/units.h"
#include "report/bar.h"

namespace capstan {
namespace {

constexpr auto kBetweenDraws = std::chrono::milliseconds(100);

std::string rate(double seconds_per_step) {
  if (!(seconds_per_step > 0)) return "?it/s";
  return seconds_per_step > 1 ? fmt::format("{:.2f}s/it", seconds_per_step)
                              : fmt::format("{:.2f}it/s", 1 / seconds_per_step);
}

}  // namespace

int terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

std::string progress_bar(const ProgressState& s, int columns) {
  const std::string notes = s.notes.empty() ? "" : ", " + s.notes;
  if (s.total == 0) {
    const std::string text = fmt::format("{}it [{}, {}{}]", s.done, clock_text(s.elapsed),
                                         rate(s.seconds_per_step), notes);
    return text.substr(0, static_cast<size_t>(std::max(0, columns - 1)));
  }
  const double fraction = std::min(1.0, static_cast<double>(s.done) / static_cast<double>(s.total));
  const double to_go =
      s.seconds_per_step > 0 ? s.seconds_per_step * static_cast<double>(s.total - s.done) : -1;
  // Rounded down, so that 100% means done.
  const std::string percent = fmt::format("{:3.0f}%|", std::floor(100 * fraction));
  const std::string text =
      fmt::format("| {}/{} [{}<{}, {}{}]", s.done, s.total, clock_text(s.elapsed),
                  s.done >= s.total ? "00:00" : clock_text(to_go), rate(s.seconds_per_step), notes);
  // The last column stays empty: some terminals wrap once it is written.
  const int room = std::max(0, columns - 1 - static_cast<int>(percent.size()));
  const int width = std::min(kWidestBar, room - static_cast<int>(text.size()));
  if (width >= kNarrowestBar) return percent + block_bar(fraction, width) + text;
  return percent + text.substr(1, static_cast<size_t>(room));
}

std::string iteration_line(const IterationLine& l) {
  return fmt::format(
      "Epoch {} | iter {} step {} | loss train: {:.3f}, val: {} | iter time: {:.2f} ms{}", l.epoch,
      l.iter, l.step, l.loss, l.val_loss ? fmt::format("{:.3f}", *l.val_loss) : "n/a",
      l.seconds * 1e3, l.stepped ? " (step)" : "");
}

std::string validation_line(int64_t iter, double val_loss, double seconds) {
  return fmt::format("iter {}: val loss {:.4f}, val time: {:.2f} ms", iter, val_loss,
                     seconds * 1e3);
}

std::string final_evaluation_line(double val_loss) {
  return fmt::format("Final evaluation | val loss: {:.3f} | val ppl: {:.3f}", val_loss,
                     std::exp(val_loss));
}

Progress::Progress(int64_t total_steps, int64_t done)
    : total_(total_steps),
      first_(done),
      done_(done),
      terminal_(can_redraw()),
      start_(std::chrono::steady_clock::now()) {
  if (terminal_) draw();
}

bool Progress::replaces_lines() const {
  return terminal_ && isatty(STDOUT_FILENO) == 1;
}

double Progress::seconds() const {
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start_;
  return std::max(1e-9, all.count() - excluded_);
}

std::string Progress::bar() const {
  const double training = seconds(), all = training + excluded_;
  const int64_t made = done_ - first_;
  ProgressState s{.done = done_, .total = total_, .elapsed = all};
  if (made > 0) {
    s.seconds_per_step = all / static_cast<double>(made);
    s.notes = fmt::format("loss={:.3f}, lr={:.1e}, tok/s={}", last_.loss, last_.lr,
                          short_count(static_cast<double>(tokens_) / training));
  }
  return progress_bar(s, terminal_columns());
}

void Progress::draw() {
  log::draw_bar(bar());
  last_draw_ = std::chrono::steady_clock::now();
  drawn_ = true;
}

void Progress::step(const Line& line) {
  ++done_;
  tokens_ += line.tokens;
  last_ = line;
  if (!terminal_) return;
  drawn_ = false;
  const bool due = std::chrono::steady_clock::now() - last_draw_ >= kBetweenDraws;
  if (due || done_ == total_) draw();
}

void Progress::finish() {
  if (!terminal_) return;
  if (!drawn_) draw();
  log::end_bar();
  terminal_ = false;
}

}  // namespace capstan
