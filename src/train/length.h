#pragma once

#include <string>

#include "data/dataset/dataset.h"
#include "optim/schedule.h"
#include "recipe/recipe.h"

namespace capstan {

// The length of a run. It depends only on the recipe and the training set, so a resumed run gets
// the same.
//
// An epoch is a whole pass over the data; its last step may have fewer samples. max_tokens counts
// inputs without padding, by the mean of a step. The shortest limit of the recipe applies.
// train.max_time is not included: time differs from run to run.
class RunLength {
 public:
  RunLength(const Recipe& recipe, const Dataset& train, int64_t max_seq_length);
  // Without a dataset: from the number of samples and of inputs per epoch.
  RunLength(const Recipe& recipe, int64_t samples, int64_t inputs_per_epoch);

  int64_t steps() const { return steps_; }  // very large if nothing limits them
  // Whether a limit other than train.max_time ends the run.
  bool limited() const { return limited_; }
  // " of 400", for a message that counts steps; empty if nothing limits them.
  std::string of_steps() const;
  // "12 of 400 steps"; "12 steps" if nothing limits them.
  std::string counted(int64_t steps) const;
  int64_t steps_per_epoch() const { return steps_per_epoch_; }
  int64_t warmup_steps() const { return warmup_; }
  // Epoch of the step that follows `steps` steps, counted from 1.
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
