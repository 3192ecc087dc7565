#include "data/batch/step_batches.h"

#include "base/error.h"

namespace capstan {

StepBatches::StepBatches(const Dataset& dataset, int64_t global_batch, int64_t micro_batch,
                         uint64_t seed, const BatchOptions& options, const Ranks& ranks)
    : sampler_(dataset.size(), global_batch, seed),
      steps_{Step{MicroBatches(dataset, micro_batch, options, ranks), {}},
             Step{MicroBatches(dataset, micro_batch, options, ranks), {}}} {
  for (Step& step : steps_)
    step.samples.reserve(static_cast<size_t>(std::min(global_batch, dataset.size())));
}

MicroBatches& StepBatches::of(int64_t number) {
  require(number >= 0, Fault::bug, "steps count from 0, not {}", number);
  Step& step = steps_[static_cast<size_t>(number % 2)];
  if (step.number != number) {
    const auto samples = sampler_.ids(number);
    step.samples.assign(samples.begin(), samples.end());
    step.data.start(step.samples);
    step.number = number;
  }
  return step.data;
}

}  // namespace capstan
