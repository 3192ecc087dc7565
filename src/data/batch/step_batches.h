#pragma once

#include <array>

#include "data/batch/micro_batches.h"
#include "data/dataset/sampler.h"

namespace capstan {

// The micro-batches of a run's steps, such that those of the next step can be looked at while the
// step before still runs. Which samples a step has is the Sampler's to say.
class StepBatches {
 public:
  // The dataset must outlive this, and not change. Throws as Sampler and MicroBatches do.
  StepBatches(const Dataset& dataset, int64_t global_batch, int64_t micro_batch, uint64_t seed,
              const BatchOptions& options);

  // Those of that step, started when they are first asked for; valid until the second step after it
  // is. Allocates nothing.
  MicroBatches& of(int64_t step);

 private:
  struct Step {
    MicroBatches data;
    std::vector<int64_t> samples;  // the sampler's are gone with its epoch
    int64_t number = -1;
  };

  Sampler sampler_;
  std::array<Step, 2> steps_;
};

}  // namespace capstan
