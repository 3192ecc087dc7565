#include <fmt/format.h>

#include <cmath>

#include "base/units.h"
#include "report/summary.h"

namespace capstan {
namespace {

double per_second(int64_t n, double seconds) {
  return seconds > 0 ? static_cast<double>(n) / seconds : 0;
}

// "6.13 GB", as in LitGPT; small values are in MB or KB.
std::string gigabytes(int64_t bytes) {
  const auto n = static_cast<double>(bytes);
  if (n >= 995e6) return fmt::format("{:.2f} GB", n / 1e9);
  return n >= 995e3 ? fmt::format("{:.2f} MB", n / 1e6) : fmt::format("{:.2f} KB", n / 1e3);
}

// A block of labelled lines; LitGPT's labels are 26 columns wide.
class Block {
 public:
  void section(const char* title) { text_ += fmt::format("| {:-<54}\n| {}\n", "", title); }
  template <class... Args>
  void line(const char* label, fmt::format_string<Args...> format, Args&&... args) {
    text_ +=
        fmt::format("| - {:<26}:  {}\n", label, fmt::format(format, std::forward<Args>(args)...));
  }
  std::string end() const { return text_ + std::string(55, '-') + "\n"; }

 private:
  std::string text_;
};

void performance(Block& b, const RunSummary& r) {
  b.section("Performance");
  b.line("Training Time", "{:.2f} s", r.train_seconds);
  if (r.eval_seconds > 0) b.line("Evaluation Time", "{:.2f} s", r.eval_seconds);
  if (r.save_seconds > 0) b.line("Saving Time", "{:.2f} s", r.save_seconds);
  b.line("Tok/sec (w/o Padding)", "{:.2f} tok/s", r.tokens_per_second());
  b.line("Tok/sec (w/ Padding)", "{:.2f} tok/s", r.tokens_per_second_with_padding());
  if (const auto beyond = r.beyond_prediction())
    b.line("Step Time", "{:.4g} s ({:.4g} s predicted, {:+.1f} %)", r.step_seconds,
           r.predicted_seconds, 100 * *beyond);
  if (r.flops > 0 && r.train_seconds > 0)
    b.line("GFLOP/s", "{:.1f}", r.flops / r.train_seconds / 1e9);
  if (const auto mfu = r.mfu()) b.line("MFU", "{:.1f} %", 100 * *mfu);
}

void result(Block& b, const RunSummary& r) {
  if (!r.last_loss && !r.val_loss && r.checkpoint.empty()) return;
  b.section("Result");
  if (r.first_loss) b.line("First Loss", "{:.4f}", *r.first_loss);
  if (r.last_loss) b.line("Last Loss", "{:.4f}", *r.last_loss);
  if (r.val_loss) b.line("Val Loss", "{:.4f} (ppl {:.3f})", *r.val_loss, std::exp(*r.val_loss));
  if (r.best_val_loss)
    b.line("Best Val Loss", "{:.4f} (after step {}{}{})", *r.best_val_loss, r.best_step,
           r.best.empty() ? "" : "; ", r.best);
  if (!r.checkpoint.empty()) b.line("Saved To", "{}", r.checkpoint);
}

}  // namespace

double RunSummary::tokens_per_second() const {
  return per_second(tokens_with_prompt, train_seconds);
}

double RunSummary::tokens_per_second_with_padding() const {
  return per_second(tokens_with_padding, train_seconds);
}

std::optional<double> RunSummary::mfu() const {
  if (!(flops > 0 && train_seconds > 0 && peak_flops_per_second > 0)) return {};
  return flops / train_seconds / peak_flops_per_second;
}

std::optional<double> RunSummary::beyond_prediction() const {
  if (!(step_seconds > 0 && predicted_seconds > 0)) return {};
  return step_seconds / predicted_seconds - 1;
}

std::string rising_validation(const std::vector<MetricsRow>& rows) {
  constexpr double kWorthSaying = 0.02;
  const MetricsRow *lowest = nullptr, *last = nullptr;
  for (const MetricsRow& row : rows) {
    if (!row.loss || !row.val_loss) continue;
    if (lowest == nullptr || *row.val_loss < *lowest->val_loss) lowest = &row;
    last = &row;
  }
  if (lowest == nullptr || *last->val_loss <= (1 + kWorthSaying) * *lowest->val_loss) return {};
  return fmt::format(
      "The validation loss was lowest after step {}, {:.3f}, and rose to {:.3f} after step {}: "
      "since "
      "then the model learns its training data by heart. train.keep_best keeps the best model, "
      "train.patience ends the run.",
      lowest->step, *lowest->val_loss, *last->val_loss, last->step);
}

std::string verdict(const RunSummary& r) {
  const std::string steps = r.total_steps > 0 && r.total_steps != r.steps
                                ? fmt::format("{} of {}", r.steps, count(r.total_steps, "step"))
                                : count(r.steps, "step");
  std::string s = r.stopped_by.empty() ? "Trained " : "Stopped by " + r.stopped_by + " after ";
  s += fmt::format("{} in {}", steps, format_duration(r.train_seconds));
  const char* before = "; ";
  if (r.first_loss && r.last_loss) {
    s += fmt::format("; loss {:.3f} to {:.3f}", *r.first_loss, *r.last_loss);
    before = ", ";
  }
  if (r.val_loss)
    s += fmt::format("{}validation {:.3f} (perplexity {:.2f})", before, *r.val_loss,
                     std::exp(*r.val_loss));
  return s;
}

std::string closing_block(const RunSummary& r) {
  Block b;
  b.section("Token Counts");
  b.line("Input Tokens", "{}", r.input_tokens);
  b.line("Tokens w/ Prompt", "{}", r.tokens_with_prompt);
  b.line("Total Tokens (w/ Padding)", "{}", r.tokens_with_padding);
  performance(b, r);
  b.section("Memory Usage");
  const auto line = [&](const char* label, int64_t n) { b.line(label, "{}", gigabytes(n)); };
  line("Memory Used", r.memory.measured_bytes);
  line("Memory Planned", r.memory.planned_bytes);
  if (r.host_memory.planned_bytes > 0) {
    line("Host Memory Used", r.host_memory.measured_bytes);
    line("Host Memory Planned", r.host_memory.planned_bytes);
  }
  if (r.process_bytes > 0) line("Process, peak", r.process_bytes);
  result(b, r);
  return b.end();
}

}  // namespace capstan
