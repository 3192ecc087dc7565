#include "report/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/units.h"

namespace capstan {
namespace {

constexpr int kWidestBar = 24, kNarrowestBar = 4;

int terminal_columns() {
  winsize size{};
  const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string progress_bar(double fraction, const std::string& text, int columns) {
  const std::string percent = fmt::format("{:3.0f}% ", 100 * fraction);
  // The last column stays free: some terminals wrap once it is written.
  const int room = std::max(0, columns - 1 - static_cast<int>(percent.size()));
  const int width = std::min(kWidestBar, room - 1 - static_cast<int>(text.size()));
  std::string bar;
  if (width >= kNarrowestBar) {
    const int full = static_cast<int>(fraction * width + 0.5);
    for (int i = 0; i < width; ++i) bar += i < full ? "█" : "░";
    bar += " ";
  }
  return percent + bar + text.substr(0, static_cast<size_t>(room));
}

Progress::Progress(int64_t total_steps, int64_t interval)
    : total_(total_steps),
      interval_(interval),
      terminal_(isatty(STDERR_FILENO) == 1),
      start_(std::chrono::steady_clock::now()) {}

double Progress::seconds() const {
  const std::chrono::duration<double> all = std::chrono::steady_clock::now() - start_;
  return std::max(1e-9, all.count() - excluded_);
}

std::string Progress::render(const Line& line) const {
  const double training = seconds();
  const double eta =
      (training + excluded_) / static_cast<double>(done_) * static_cast<double>(total_ - done_);
  const std::string val = line.val_loss < 0 ? "" : fmt::format(" | val {:.4f}", line.val_loss);
  return fmt::format("step {}/{} | loss {:.4f}{} | lr {:.2e} | {} tok/s | ETA {}", done_, total_,
                     line.loss, val, line.lr, format_count(static_cast<double>(tokens_) / training),
                     format_duration(eta));
}

void Progress::step(const Line& line) {
  ++done_;
  tokens_ += line.tokens;
  const bool validated = line.val_loss >= 0;
  const bool shown = validated || done_ % interval_ == 0 || done_ == total_;
  if (terminal_) {
    if (validated) fmt::print(stderr, "\r\x1b[2K{}\n", render(line));
    Line bare = line;
    bare.val_loss = -1;
    const double fraction = static_cast<double>(done_) / static_cast<double>(total_);
    last_ = progress_bar(fraction, render(bare), terminal_columns());
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
