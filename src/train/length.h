#pragma once

#include <string>

#include "data/dataset/dataset.h"
#include "optim/schedule.h"
#include "recipe/recipe.h"

namespace capstan {

// How long a run is: a function of the recipe and the training set alone, so that a resumed run
// agrees.
//
// Epochs are whole passes, of which the last step takes what is left; max_tokens is counted in
// inputs without padding, by the mean of a step. The shortest of what the recipe limits counts.
// train.max_time is not in it: time differs from run to run.
class RunLength {
 public:
  RunLength(const Recipe& recipe, const Dataset& train, int64_t max_seq_length);
  // Without data: `samples` of max_seq_length tokens.
  RunLength(const Recipe& recipe, int64_t samples, int64_t inputs_per_epoch);

  int64_t steps() const { return steps_; }  // more than can be made where nothing limits them
  // Whether anything but train.max_time ends the run.
  bool limited() const { return limited_; }
  // " of 400", for a message that counts steps; empty where nothing limits them.
  std::string of_steps() const;
  // "12 of 400 steps"; "12 steps" where nothing limits them.
  std::string counted(int64_t steps) const;
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t warmup_steps() const { return warmup_; }
  // From 1, of the step that comes after `steps` of them.
  int64_t epoch_after(int64_t steps) const { return steps / steps_per_epoch_ + 1; }
  // Micro-batches and samples in the first `steps` steps.
  int64_t iterations(int64_t steps) const;
  int64_t samples_in(int64_t steps) const;

  Schedule schedule(const Recipe& recipe) const;

 private:
  int64_t global_, micro_, samples_;
  int64_t steps_per_epoch_ = 1, steps_ = 1, warmup_ = 0;
  bool limited_ = false;
};

}  // namespace capstan
