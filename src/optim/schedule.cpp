#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace capstan {

double Schedule::at(int64_t step) const {
  if (step < warmup_steps)
    return lr * static_cast<double>(step) / static_cast<double>(warmup_steps);
  const auto length = static_cast<double>(std::max<int64_t>(1, total_steps - warmup_steps));
  const double done = std::min(1.0, static_cast<double>(step - warmup_steps) / length);
  switch (decay) {
    case Decay::constant: return lr;
    case Decay::linear: return lr + (min_lr - lr) * done;
    case Decay::cosine:
      return min_lr + (lr - min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
  return lr;
}

}  // namespace capstan
