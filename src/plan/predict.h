#pragma once

#include "machine/memory.h"
#include "plan/calibration.h"
#include "tensor/trace_file.h"
#include "train/setup.h"

namespace capstan {

// Predicted time of a step, and the tokens it trains on.
struct StepEstimate {
  double seconds = 0;
  double tokens = 0;   // without padding
  double waiting = 0;  // of a pipeline: the part of the time that a stage waits for others
  double exposed = 0;  // of ranks: the part in which computation waits for communication
  // What computation takes, in seconds; of a pipeline the mean of its stages.
  SecondsByKind by_kind = {};
  double tokens_per_second() const { return seconds > 0 ? tokens / seconds : 0; }
  // As if everything took so many times as long.
  void slow(double factor) {
    seconds *= factor;
    for (double& part : by_kind) part *= factor;
  }
};

// Simulates a step over these samples on `sim`. Their micro-batches must fit the limits of the
// options.
StepEstimate estimate_step(const TrainOptions& options, const CostModel& machine,
                           MicroBatches& data, std::span<const int64_t> samples);

// The mean over steps of a run's first epoch: all of them if there are few, else a selection of at
// most so many.
inline constexpr int64_t kMostSteps = 8;
StepEstimate estimate_run(const TrainOptions& options, const CostModel& machine,
                          const Recipe& recipe, const RunInputs& inputs,
                          int64_t most_steps = kMostSteps);

// A step of `micro_batches` micro-batches for each rank, each of the largest size that the options
// allow.
StepEstimate estimate_largest(const TrainOptions& options, const CostModel& machine,
                              int64_t micro_batches);

// A simulated step with what happens in it, and when. Of ranks that all do the same there is one
// process, of a pipeline one for each stage, with its passes. The trace ends when the step does.
struct StepTrace {
  StepEstimate estimate;
  TraceFile file;
};
// The step that estimate_step simulates: the second one if there are several ranks.
StepTrace trace_step(const TrainOptions& options, const CostModel& machine, MicroBatches& data,
                     std::span<const int64_t> samples);
// The first step of a run.
StepTrace trace_run(const TrainOptions& options, const CostModel& machine, const Recipe& recipe,
                    const RunInputs& inputs);
// The step of estimate_largest. That extrapolates from few micro-batches; here all are simulated,
// except of a pipeline, whose passes take the mean of few. So the time of a step may differ a
// little.
StepTrace trace_largest(const TrainOptions& options, const CostModel& machine,
                        int64_t micro_batches);

// Whether ranks that share each layer save time if they overlap what they exchange with products,
// and every one of them has the memory for it.
bool overlap_pays(const TrainOptions& options, const CostModel& machine, const Room& available);

}  // namespace capstan
