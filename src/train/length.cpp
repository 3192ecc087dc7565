#include "train/length.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace capstan {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0);
}

// Longer than any run, and safe to multiply by a batch size.
constexpr double kForever = 1e15;

}  // namespace

RunLength::RunLength(const Recipe& recipe, const Dataset& train, int64_t max_seq_length)
    : RunLength(recipe, train.size(), count(train, max_seq_length).inputs) {}

RunLength::RunLength(const Recipe& r, int64_t samples, int64_t inputs_per_epoch)
    : samples_(samples) {
  require(samples > 0, Fault::file, "the training set has no samples");
  global_ = std::min(r.global_batch_size, samples);
  micro_ = std::min(r.micro_batch_size.size, global_);
  steps_per_epoch_ = ceil_div(samples, global_);
  const auto per_epoch = static_cast<double>(steps_per_epoch_);
  double steps = kForever;
  if (r.epochs) steps = std::min(steps, static_cast<double>(*r.epochs) * per_epoch);
  if (r.max_steps) steps = std::min(steps, static_cast<double>(*r.max_steps));
  if (r.max_tokens)
    steps = std::min(steps, std::ceil(static_cast<double>(*r.max_tokens) * per_epoch /
                                      static_cast<double>(std::max<int64_t>(1, inputs_per_epoch))));
  steps_ = static_cast<int64_t>(steps);
  limited_ = r.epochs || r.max_steps || r.max_tokens;
  if (r.lr_warmup_fraction)
    warmup_ = std::llround(*r.lr_warmup_fraction * static_cast<double>(steps_));
  else
    warmup_ = r.lr_warmup_steps.value_or(0);
}

std::string RunLength::of_steps() const {
  return limited_ ? fmt::format(" of {}", steps_) : "";
}

std::string RunLength::counted(int64_t steps) const {
  return limited_ ? fmt::format("{} of {}", steps, count(steps_, "step")) : count(steps, "step");
}

int64_t RunLength::iterations(int64_t steps) const {
  const int64_t last = samples_ - (steps_per_epoch_ - 1) * global_;
  const int64_t per_epoch =
      (steps_per_epoch_ - 1) * ceil_div(global_, micro_) + ceil_div(last, micro_);
  return steps / steps_per_epoch_ * per_epoch +
         steps % steps_per_epoch_ * ceil_div(global_, micro_);
}

int64_t RunLength::samples_in(int64_t steps) const {
  return steps / steps_per_epoch_ * samples_ + steps % steps_per_epoch_ * global_;
}

Schedule RunLength::schedule(const Recipe& r) const {
  return {.lr = r.lr,
          .min_lr = r.min_lr,
          .warmup_steps = warmup_,
          .total_steps = steps_,
          .decay = r.schedule};
}

}  // namespace capstan
