#pragma once

#include <array>

#include "data/batch/micro_batches.h"
#include "data/dataset/sampler.h"

namespace capstan {

// The micro-batches of a run's steps; those of the next step can be prepared while the current step
// runs. The Sampler chooses the samples of a step.
class StepBatches {
 public:
  // The dataset must outlive this and not change. Throws as Sampler and MicroBatches do.
  StepBatches(const Dataset& dataset, int64_t global_batch, int64_t micro_batch, uint64_t seed,
              const BatchOptions& options, const Ranks& ranks = {});

  // The micro-batches of that step, started on first request; valid until the second step after it
  // is requested. Allocates nothing.
  MicroBatches& of(int64_t step);

 private:
  struct Step {
    MicroBatches data;
    std::vector<int64_t> samples;  // the sampler discards them with their epoch
    int64_t number = -1;
  };

  Sampler sampler_;
  std::array<Step, 2> steps_;
};

}  // namespace capstan
