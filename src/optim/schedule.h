#pragma once

#include <cstdint>

#include "recipe/choices.h"

namespace capstan {

// The learning rate over a run: a linear warm-up from 0, then a decay that reaches `min_lr` one
// step after the last.
struct Schedule {
  using Decay = LrDecay;

  double lr = 1e-3;  // the peak
  double min_lr = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 1;
  Decay decay = Decay::cosine;

  // For step 0, 1, …: warm-up step s has lr * s / warmup_steps, as in LitGPT. Past the end the rate
  // stays constant. A warm-up longer than the run is allowed and never ends.
  double at(int64_t step) const;
};

}  // namespace capstan
