#include "plan/predict.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "comm/simulated.h"
#include "data/dataset/sampler.h"
#include "plan/alike.h"
#include "train/balance.h"

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
        batch_ranks_(batch_ranks(options.ranks, options.mesh).size),
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
  // Of `micros` micro-batches, of which there are some, all alike.
  StepEstimate step_of(int64_t micros, MicroBatches& data, std::span<const int64_t> samples) {
    const StepEstimate all = step(data, samples);
    const int64_t made = data.count();
    if (made == micros) return all;
    const StepEstimate less = step(data, samples.first(samples.size() / static_cast<size_t>(made) *
                                                       static_cast<size_t>(made - 1)));
    const auto more = static_cast<double>(micros - made);
    const double seconds = all.seconds + more * (all.seconds - less.seconds);
    const double exposed = all.exposed * all.seconds;
    return {seconds, all.tokens + more * (all.tokens - less.tokens), 0,
            (exposed + more * (exposed - less.exposed * less.seconds)) / seconds};
  }

 private:
  // The second step, which waits for what the first left to be gathered, as later ones do. The
  // other ranks take as long, for as many tokens.
  StepEstimate step_of_ranks(MicroBatches& data, std::span<const int64_t> samples) {
    double began = 0, waited = 0, tokens = 0;
    for (int i = 0; i < 2; ++i) {
      began = q_.now();
      waited = q_.waited();
      data.start(samples);
      const StepResult r = trainer_.step(data, i);
      tokens = static_cast<double>((r.tokens - r.padding) * batch_ranks_);
    }
    const double seconds = q_.now() - began;
    return {seconds, tokens, 0, (q_.waited() - waited) / seconds};
  }

  Arena device_, host_;
  Queue q_;
  int64_t ranks_, batch_ranks_;
  Trainer trainer_;
};

// All stages of a pipeline, each on its own: what their passes take, and then the schedule, in
// which stages wait for each other.
class StagesSimulation {
 public:
  StagesSimulation(const TrainOptions& options, const CostModel& machine) : options_(options) {
    options_.pipeline.cuts = cuts_of(options);
    alike_ = stages_alike(options_);
    for (const std::vector<int>& stages : alike_) {
      TrainOptions o = options_;
      o.ranks.rank = rank_of(stages[0]);
      stages_.push_back(std::make_unique<Stage>(o, machine));
    }
  }

  StepEstimate step(MicroBatches& data, std::span<const int64_t> samples) {
    data.start(samples);
    return step_of(data.count(), data, samples);
  }
  // Of `micros` micro-batches, of which there are some, all alike.
  StepEstimate step_of(int64_t micros, MicroBatches& data, std::span<const int64_t> samples) {
    data.start(samples);
    const auto more = static_cast<double>(micros) / static_cast<double>(data.count());
    const int stages = options_.mesh.pipeline;
    std::vector<PipelineCosts> costs(static_cast<size_t>(stages));
    double rest = 0, tokens = 0;  // what a step takes besides its passes
    double waited = 0;            // of all stages, for collectives
    for (size_t i = 0; i < alike_.size(); ++i) {
      const Stage::Taken taken = stages_[i]->step(data, samples);
      for (const int stage : alike_[i]) {
        PipelineCosts& cost = costs[static_cast<size_t>(stage)];
        cost = taken.costs;
        cost.send = send_seconds(stage);
      }
      rest = std::max(rest, taken.rest);
      tokens = taken.tokens * more;
      waited +=
          (taken.waited + taken.waited_in_passes * more) * static_cast<double>(alike_[i].size());
    }
    const PipelineOptions& p = options_.pipeline;
    const PipelineShape shape{stages, p.chunks, static_cast<int>(micros)};
    const auto all = pipeline_schedule(p.kind, shape);
    const double passes = pipeline_seconds_by_stage(shape, all, costs);
    double busy = 0;  // of all stages
    for (const PipelineCosts& c : costs)
      busy += (c.forward + c.backward + c.weights) * static_cast<double>(micros * p.chunks);
    return {passes + rest, tokens * batch_ranks(options_.ranks, options_.mesh).size,
            (passes - busy / stages) / (passes + rest), waited / stages / (passes + rest)};
  }

 private:
  using Do = PipelineAction::Do;

  int rank_of(int stage) const { return stage * (options_.ranks.size / options_.mesh.pipeline); }

  // What a stage receives, by the slower of its links.
  double send_seconds(int stage) const {
    const int stages = options_.mesh.pipeline;
    const double bytes = static_cast<double>(options_.limits.tokens * options_.model.hidden *
                                             size_of(types_of(options_.precision).compute)) /
                         (options_.mesh.tensor * options_.mesh.context);
    const auto over = [&](int other) {
      return options_.network.pass_seconds(rank_of(other), rank_of(stage), bytes);
    };
    return std::max(over((stage + 1) % stages), over((stage + stages - 1) % stages));
  }

  class Stage {
   public:
    Stage(const TrainOptions& options, const CostModel& machine)
        : q_(Device::sim, device_, host_, machine),
          trainer_(q_, options, simulated(options.ranks, "dp", options.network)) {
      trainer_.rehearse();
    }
    struct Taken {
      PipelineCosts costs;
      double rest = 0, tokens = 0;
      double waited = 0, waited_in_passes = 0;  // for collectives: in the rest, and in passes
    };
    // The second step, as later ones.
    Taken step(MicroBatches& data, std::span<const int64_t> samples) {
      Taken taken;
      for (int i = 0; i < 2; ++i) {
        const std::array<Pipeline::Passes, 3> before = passes();
        const double began = q_.now(), waited = q_.waited();
        data.start(samples);
        const StepResult r = trainer_.step(data, i);
        taken.tokens = static_cast<double>(r.tokens - r.padding);
        taken.rest = q_.now() - began;
        taken.waited_in_passes = 0;
        std::array<double, 3> mean{};
        for (size_t k = 0; k < mean.size(); ++k) {
          const Pipeline::Passes after = passes()[k];
          const double seconds = after.seconds - before[k].seconds;
          taken.rest -= seconds;
          taken.waited_in_passes += after.waited - before[k].waited;
          if (after.count > before[k].count)
            mean[k] = seconds / static_cast<double>(after.count - before[k].count);
        }
        taken.costs = {.forward = mean[Do::forward],
                       .backward = mean[Do::backward],
                       .weights = mean[Do::weights]};
        taken.waited = q_.waited() - waited - taken.waited_in_passes;
      }
      return taken;
    }

   private:
    std::array<Pipeline::Passes, 3> passes() const {
      const Pipeline& p = *trainer_.pipeline();
      return {p.passes(Do::forward), p.passes(Do::backward), p.passes(Do::weights)};
    }

    Arena device_, host_;
    Queue q_;
    Trainer trainer_;
  };

  TrainOptions options_;
  std::vector<std::vector<int>> alike_;
  std::vector<std::unique_ptr<Stage>> stages_;  // one of each of them
};

// Calls body(simulation) with what simulates these options.
template <class Body>
StepEstimate simulate(const TrainOptions& options, const CostModel& machine, const Body& body) {
  if (options.mesh.pipeline > 1) {
    StagesSimulation stages(options, machine);
    return body(stages);
  }
  Simulation one(options, machine);
  return body(one);
}

}  // namespace

StepEstimate estimate_step(const TrainOptions& options, const CostModel& machine,
                           MicroBatches& data, std::span<const int64_t> samples) {
  return simulate(options, machine, [&](auto& s) { return s.step(data, samples); });
}

StepEstimate estimate_run(const TrainOptions& options, const CostModel& machine,
                          const Recipe& recipe, const RunInputs& inputs) {
  const Dataset& train = inputs.data.train;
  const int64_t global = std::min(recipe.global_batch_size, train.size());
  const int64_t micro = std::min(recipe.micro_batch_size, train.size());
  Sampler sampler(train.size(), global, static_cast<uint64_t>(recipe.seed));
  MicroBatches data(train, micro, batch_options(recipe, inputs),
                    batch_ranks(options.ranks, options.mesh));
  const int64_t most = std::clamp<int64_t>(kMicroBatches * micro / global, 1, kSteps);
  const int64_t steps = std::min(most, sampler.steps_per_epoch());
  return simulate(options, machine, [&](auto& simulation) {
    StepEstimate mean;
    for (int64_t i = 0; i < steps; ++i) {
      const StepEstimate one =
          simulation.step(data, sampler.ids(i * sampler.steps_per_epoch() / steps));
      mean.seconds += one.seconds / static_cast<double>(steps);
      mean.tokens += one.tokens / static_cast<double>(steps);
      mean.waiting += one.waiting / static_cast<double>(steps);
      mean.exposed += one.exposed / static_cast<double>(steps);
    }
    return mean;
  });
}

StepEstimate estimate_largest(const TrainOptions& options, const CostModel& machine,
                              int64_t micro_batches) {
  const BatchLimits& l = options.limits;
  // Two micro-batches give the cost of each additional one; of a pipeline, when it is full, they
  // give that of its passes.
  const int64_t full = options.mesh.pipeline * options.pipeline.chunks;
  const int64_t made = std::min<int64_t>(micro_batches, full > 1 ? 2 * full + 2 : 2);
  const std::vector<int32_t> tokens(static_cast<size_t>(l.longest) + 1, 0);
  Dataset samples;
  // Those of one rank: all have as many, of the same size.
  for (int64_t i = 0; i < made * l.documents; ++i) samples.add(tokens, 0);
  MicroBatches data(samples, l.documents,
                    {.max_seq_length = l.longest,
                     .vocab = options.model.vocab,
                     .shares = options.mesh.token_multiple()});
  std::vector<int64_t> ids(static_cast<size_t>(samples.size()));
  std::iota(ids.begin(), ids.end(), 0);
  return simulate(options, machine,
                  [&](auto& simulation) { return simulation.step_of(micro_batches, data, ids); });
}

bool overlap_pays(const TrainOptions& options, const CostModel& machine, const Room& available) {
  TrainOptions apart = options, overlapped = options;
  apart.mesh.overlap = false;
  overlapped.mesh.overlap = true;
  const auto seconds = [&](const TrainOptions& o) {
    return estimate_largest(o, machine, o.pipeline.micro_batches).seconds;
  };
  if (seconds(overlapped) >= seconds(apart)) return false;
  overlapped.pipeline.cuts = cuts_of(overlapped);
  overlapped.staging = false;  // a run drops it if it does not fit
  for (const std::vector<int>& stages : stages_alike(overlapped)) {
    overlapped.ranks.rank = stages.front() * (options.ranks.size / options.mesh.pipeline);
    if (!fits(Trainer::plan(overlapped), available)) return false;
  }
  return true;
}

}  // namespace capstan
