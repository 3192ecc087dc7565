#include "report/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace capstan {
namespace {

constexpr int kBarWidth = 24;

std::string bar(double fraction) {
  const int full = static_cast<int>(fraction * kBarWidth + 0.5);
  std::string s;
  for (int i = 0; i < kBarWidth; ++i) s += i < full ? "█" : "░";
  return s;
}

}  // namespace

Progress::Progress(int64_t total_steps, int64_t interval)
    : total_(total_steps),
      interval_(interval),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string Progress::render(const Line& line) const {
  const double elapsed = seconds();
  const double eta = elapsed / static_cast<double>(done_) * static_cast<double>(total_ - done_);
  const std::string val = line.val_loss < 0 ? "" : fmt::format(" | val {:.4f}", line.val_loss);
  return fmt::format("step {}/{} | loss {:.4f}{} | lr {:.2e} | {} tok/s | ETA {}", done_, total_,
                     line.loss, val, line.lr, format_count(static_cast<double>(tokens_) / elapsed),
                     format_duration(eta));
}

void Progress::step(const Line& line) {
  ++done_;
  tokens_ += line.tokens;
  const bool shown = done_ % interval_ == 0 || done_ == total_;
  if (terminal_) {
    const double fraction = static_cast<double>(done_) / static_cast<double>(total_);
    last_ = fmt::format("{:3.0f}% {} {}", 100 * fraction, bar(fraction), render(line));
    fmt::print(stderr, "\r\x1b[2K{}", last_);
    open_ = true;
  } else if (shown) {
    fmt::print(stderr, "{}\n", render(line));
  }
}

void Progress::say(const std::string& text) {
  if (terminal_ && open_)
    fmt::print(stderr, "\r\x1b[2K{}\n{}", text, last_);
  else
    fmt::print(stderr, "{}\n", text);
}

void Progress::finish() {
  if (open_) fmt::print(stderr, "\n");
  open_ = false;
}

}  // namespace capstan
