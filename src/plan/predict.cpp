#include "plan/predict.h"

#include <algorithm>
#include <numeric>

#include "comm/simulated.h"
#include "data/dataset/sampler.h"

namespace capstan {
namespace {

// Enough for a mean; a step of many micro-batches already averages.
constexpr int64_t kSteps = 8, kMicroBatches = 128;

// A trainer on a simulated machine that only counts costs.
class Simulation {
 public:
  Simulation(const TrainOptions& options, const CostModel& machine)
      : q_(Device::sim, device_, host_, machine),
        ranks_(options.ranks.size),
        trainer_(q_, options, simulated(options.ranks, "dp", options.network)) {
    trainer_.rehearse();
  }

  StepEstimate step(MicroBatches& data, std::span<const int64_t> samples) {
    if (ranks_ > 1) return step_of_ranks(data, samples);
    q_.reset_totals();
    data.start(samples);
    const StepResult r = trainer_.step(data, 0);
    return {q_.seconds(), static_cast<double>(r.tokens - r.padding)};
  }

 private:
  // The second step, which waits for what the first left to be gathered, as later ones do. The
  // other ranks take as long, for as many tokens.
  StepEstimate step_of_ranks(MicroBatches& data, std::span<const int64_t> samples) {
    double began = 0, tokens = 0;
    for (int i = 0; i < 2; ++i) {
      began = q_.now();
      data.start(samples);
      const StepResult r = trainer_.step(data, i);
      tokens = static_cast<double>((r.tokens - r.padding) * ranks_);
    }
    return {q_.now() - began, tokens};
  }

  Arena device_, host_;
  Queue q_;
  int64_t ranks_;
  Trainer trainer_;
};

}  // namespace

StepEstimate estimate_step(const TrainOptions& options, const CostModel& machine,
                           MicroBatches& data, std::span<const int64_t> samples) {
  return Simulation(options, machine).step(data, samples);
}

StepEstimate estimate_run(const TrainOptions& options, const CostModel& machine,
                          const Recipe& recipe, const RunInputs& inputs) {
  const Dataset& train = inputs.data.train;
  const int64_t global = std::min(recipe.global_batch_size, train.size());
  const int64_t micro = std::min(recipe.micro_batch_size, train.size());
  Sampler sampler(train.size(), global, static_cast<uint64_t>(recipe.seed));
  MicroBatches data(train, micro, batch_options(recipe, inputs), options.ranks);
  Simulation simulation(options, machine);
  const int64_t most = std::clamp<int64_t>(kMicroBatches * micro / global, 1, kSteps);
  const int64_t steps = std::min(most, sampler.steps_per_epoch());
  StepEstimate mean;
  for (int64_t i = 0; i < steps; ++i) {
    const StepEstimate one =
        simulation.step(data, sampler.ids(i * sampler.steps_per_epoch() / steps));
    mean.seconds += one.seconds / static_cast<double>(steps);
    mean.tokens += one.tokens / static_cast<double>(steps);
  }
  return mean;
}

StepEstimate estimate_largest(const TrainOptions& options, const CostModel& machine,
                              int64_t micro_batches) {
  const BatchLimits& l = options.limits;
  // Two micro-batches give the cost of each additional one.
  const int64_t ranks = options.ranks.size;
  const int64_t made = std::min<int64_t>(micro_batches, 2);
  const std::vector<int32_t> tokens(static_cast<size_t>(l.longest) + 1, 0);
  Dataset samples;
  for (int64_t i = 0; i < made * l.documents * ranks; ++i) samples.add(tokens, 0);
  MicroBatches data(samples, l.documents,
                    {.max_seq_length = l.longest, .vocab = options.model.vocab}, options.ranks);
  std::vector<int64_t> ids(static_cast<size_t>(samples.size()));
  std::iota(ids.begin(), ids.end(), 0);
  Simulation simulation(options, machine);
  const StepEstimate all = simulation.step(data, ids);
  if (made == micro_batches) return all;
  const StepEstimate one =
      simulation.step(data, std::span(ids).first(static_cast<size_t>(l.documents * ranks)));
  const auto more = static_cast<double>(micro_batches - made);
  return {all.seconds + more * (all.seconds - one.seconds),
          all.tokens + more * (all.tokens - one.tokens)};
}

}  // namespace capstan
