#pragma once

#include "plan/calibration.h"
#include "train/setup.h"

namespace capstan {

// What a step is predicted to take, and what it trains on.
struct StepEstimate {
  double seconds = 0;
  double tokens = 0;  // without padding
  double tokens_per_second() const { return seconds > 0 ? tokens / seconds : 0; }
};

// A step over these samples of the data, run on `sim`. They are cut into micro-batches that the
// options have room for.
StepEstimate estimate_step(const TrainOptions& options, const CostModel& machine,
                           MicroBatches& data, std::span<const int64_t> samples);

// The mean over steps of a run's first epoch: all of them where they are few, else some.
StepEstimate estimate_run(const TrainOptions& options, const CostModel& machine,
                          const Recipe& recipe, const RunInputs& inputs);

// A step of so many micro-batches, each the largest that the options have room for.
StepEstimate estimate_largest(const TrainOptions& options, const CostModel& machine,
                              int64_t micro_batches);

}  // namespace capstan
