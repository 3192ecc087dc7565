#pragma once

#include <cstdint>

namespace capstan {

struct LossScaleOptions {
  double start = 65536;     // a power of two
  int64_t interval = 2000;  // good steps in a row before the factor is doubled
};

// Dynamic loss scaling, for gradients that pass through f16, whose values end at 65504 and vanish
// below 6e-8: the loss is multiplied by a power of two, and the gradients are divided by it when
// they are used. As torch.amp.GradScaler: a step whose gradients are not finite is left out, and
// the factor halved; after `interval` steps without one it is doubled.
class LossScale {
 public:
  LossScale() = default;  // always 1: for gradients that need none
  explicit LossScale(const LossScaleOptions& options)
      : value_(options.start), interval_(options.interval) {}

  bool moves() const { return interval_ > 0; }
  double value() const { return value_; }

  void count_good_step();
  // After gradients that are not finite. False if the factor cannot be the reason: it is 1 or less.
  bool lower();

  // What a checkpoint keeps.
  struct State {
    double value = 1;
    int64_t good_steps = 0;  // since the factor last changed
    bool operator==(const State&) const = default;
  };
  State state() const { return {value_, good_steps_}; }
  void restore(const State& state);

 private:
  double value_ = 1;
  int64_t interval_ = 0, good_steps_ = 0;
};

}  // namespace capstan
