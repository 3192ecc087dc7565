#include "optim/loss_scale.h"

#include <cmath>

namespace capstan {

void LossScale::count_good_step() {
  if (!moves() || ++good_steps_ < interval_) return;
  good_steps_ = 0;
  // An f32 on the device.
  if (std::isfinite(static_cast<float>(2 * value_))) value_ *= 2;
}

bool LossScale::lower() {
  if (!moves() || value_ <= 1) return false;
  value_ /= 2;
  good_steps_ = 0;
  return true;
}

void LossScale::restore(const State& state) {
  if (!moves()) return;
  value_ = state.value;
  good_steps_ = state.good_steps;
}

}  // namespace capstan
