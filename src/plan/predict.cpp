#include "plan/predict.h"

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

#include "comm/simulated.h"
#include "data/dataset/sampler.h"
#include "plan/alike.h"
#include "plan/pipeline_trace.h"
#include "plan/ranks_plan.h"
#include "train/balance.h"

namespace capstan {
namespace {

// Enough for a mean; a step of many micro-batches already averages.
constexpr int64_t kMicroBatches = 128;

SecondsByKind sum(SecondsByKind a, double factor, const SecondsByKind& b) {
  for (size_t k = 0; k < a.size(); ++k) a[k] += factor * b[k];
  return a;
}
SecondsByKind difference(const SecondsByKind& a, const SecondsByKind& b) {
  return sum(a, -1, b);
}

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

  // `trace`, if there is one, has what happens in it.
  StepEstimate step(MicroBatches& data, std::span<const int64_t> samples, Trace* trace = nullptr) {
    if (trace != nullptr) trace->restart(q_.now());
    q_.trace_to(trace);
    const StepEstimate taken =
        ranks_ > 1 ? step_of_ranks(data, samples) : step_of_one(data, samples);
    q_.trace_to(nullptr);
    if (trace != nullptr) trace->finish(q_.now(), "step");
    return taken;
  }
  StepTrace traced(MicroBatches& data, std::span<const int64_t> samples) {
    Trace trace;
    const StepEstimate taken = step(data, samples, &trace);
    const std::string name =
        ranks_ == 1 ? "the device" : fmt::format("any of {} ranks, which do the same", ranks_);
    return {taken, {.processes = {{0, name, std::move(trace)}}}};
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
            (exposed + more * (exposed - less.exposed * less.seconds)) / seconds,
            sum(all.by_kind, more, difference(all.by_kind, less.by_kind))};
  }

 private:
  StepEstimate step_of_one(MicroBatches& data, std::span<const int64_t> samples) {
    q_.reset_totals();
    data.start(samples);
    const StepResult r = trainer_.step(data, 0);
    StepEstimate taken{q_.seconds(), static_cast<double>(r.tokens - r.padding)};
    for (const OpTotal& op : q_.totals()) taken.by_kind[static_cast<size_t>(op.kind)] += op.seconds;
    return taken;
  }
  // The second step, which waits for what the first left to be gathered, as later ones do. The
  // other ranks take as long, for as many tokens.
  StepEstimate step_of_ranks(MicroBatches& data, std::span<const int64_t> samples) {
    double began = 0, waited = 0, tokens = 0;
    SecondsByKind busy{};
    for (int i = 0; i < 2; ++i) {
      began = q_.now();
      waited = q_.waited();
      busy = q_.busy();
      if (q_.trace() != nullptr) q_.trace()->restart(began);
      data.start(samples);
      const StepResult r = trainer_.step(data, i);
      tokens = static_cast<double>((r.tokens - r.padding) * batch_ranks_);
    }
    const double seconds = q_.now() - began;
    return {seconds, tokens, 0, (q_.waited() - waited) / seconds, difference(q_.busy(), busy)};
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
  StepTrace traced(MicroBatches& data, std::span<const int64_t> samples) {
    StepTrace result;
    data.start(samples);
    result.estimate = step_of(data.count(), data, samples, &result.file);
    return result;
  }
  // Of `micros` micro-batches, of which there are some, all alike. `trace` gets its passes.
  StepEstimate step_of(int64_t micros, MicroBatches& data, std::span<const int64_t> samples,
                       TraceFile* trace = nullptr) {
    data.start(samples);
    const auto more = static_cast<double>(micros) / static_cast<double>(data.count());
    const int stages = options_.mesh.pipeline;
    std::vector<PipelineCosts> costs(static_cast<size_t>(stages));
    std::vector<double> rests(costs.size());
    double rest = 0, tokens = 0;  // what a step takes besides its passes
    double waited = 0;            // of all stages, for collectives
    SecondsByKind by_kind{};
    for (size_t i = 0; i < alike_.size(); ++i) {
      const Stage::Taken taken = stages_[i]->step(data, samples);
      for (const int stage : alike_[i]) {
        PipelineCosts& cost = costs[static_cast<size_t>(stage)];
        cost = taken.costs;
        cost.send = send_seconds(stage);
        rests[static_cast<size_t>(stage)] = taken.rest;
      }
      rest = std::max(rest, taken.rest);
      tokens = taken.tokens * more;
      const auto alike = static_cast<double>(alike_[i].size());
      waited += (taken.waited + taken.waited_in_passes * more) * alike;
      SecondsByKind work = taken.busy;
      for (size_t k = 0; k < work.size(); ++k)  // all but the update is done again and again
        if (k != static_cast<size_t>(OpKind::optimizer)) work[k] *= more;
      by_kind = sum(by_kind, alike / stages, work);
    }
    const PipelineOptions& p = options_.pipeline;
    const PipelineShape shape{stages, p.chunks, static_cast<int>(micros)};
    const auto all = pipeline_schedule(p.kind, shape);
    const double passes = pipeline_seconds_by_stage(shape, all, costs);
    if (trace != nullptr)
      *trace = pipeline_trace({.shape = shape,
                               .schedules = all,
                               .costs = costs,
                               .rests = rests,
                               .ranks = rank_of(1),
                               .message_bytes = message_bytes()});
    double busy = 0;  // of all stages
    for (const PipelineCosts& c : costs)
      busy += (c.forward + c.backward + c.weights) * static_cast<double>(micros * p.chunks);
    return {passes + rest, tokens * batch_ranks(options_.ranks, options_.mesh).size,
            (passes - busy / stages) / (passes + rest), waited / stages / (passes + rest), by_kind};
  }

 private:
  using Do = PipelineAction::Do;

  int rank_of(int stage) const { return stage * (options_.ranks.size / options_.mesh.pipeline); }

  // What a rank sends to the next stage.
  double message_bytes() const {
    return static_cast<double>(options_.limits.tokens * options_.model.hidden *
                               size_of(types_of(options_.precision).compute)) /
           (options_.mesh.tensor * options_.mesh.context);
  }

  // What a stage receives, by the slower of its links.
  double send_seconds(int stage) const {
    const int stages = options_.mesh.pipeline;
    const double bytes = message_bytes();
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
      SecondsByKind busy{};
    };
    // The second step, as later ones.
    Taken step(MicroBatches& data, std::span<const int64_t> samples) {
      Taken taken;
      for (int i = 0; i < 2; ++i) {
        const std::array<Pipeline::Passes, 3> before = passes();
        const double began = q_.now(), waited = q_.waited();
        const SecondsByKind busy = q_.busy();
        data.start(samples);
        const StepResult r = trainer_.step(data, i);
        taken.busy = difference(q_.busy(), busy);
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
auto simulate(const TrainOptions& options, const CostModel& machine, const Body& body) {
  if (options.mesh.pipeline > 1) {
    StagesSimulation stages(options, machine);
    return body(stages);
  }
  Simulation one(options, machine);
  return body(one);
}

// Two micro-batches give the cost of each additional one; of a pipeline, when it is full, they give
// that of its passes.
int64_t enough_of(int64_t micro_batches, const TrainOptions& options) {
  const int64_t full = options.mesh.pipeline * options.pipeline.chunks;
  return std::min<int64_t>(micro_batches, full > 1 ? 2 * full + 2 : 2);
}

// Samples of the largest size, for so many micro-batches.
class Largest {
 public:
  Largest(const TrainOptions& options, int64_t micro_batches) {
    const BatchLimits& l = options.limits;
    const std::vector<int32_t> tokens(static_cast<size_t>(l.longest) + 1, 0);
    // Those of one rank: all have as many, of the same size.
    for (int64_t i = 0; i < micro_batches * l.documents; ++i) samples_.add(tokens, 0);
    ids_.resize(static_cast<size_t>(samples_.size()));
    std::iota(ids_.begin(), ids_.end(), 0);
    data_.emplace(samples_, l.documents,
                  BatchOptions{.max_seq_length = l.longest,
                               .vocab = options.model.vocab,
                               .shares = options.mesh.token_multiple()});
  }
  Largest(const Largest&) = delete;
  Largest& operator=(const Largest&) = delete;
  MicroBatches& data() { return *data_; }
  std::span<const int64_t> ids() const { return ids_; }

 private:
  Dataset samples_;
  std::vector<int64_t> ids_;
  std::optional<MicroBatches> data_;
};

}  // namespace

StepEstimate estimate_step(const TrainOptions& options, const CostModel& machine,
                           MicroBatches& data, std::span<const int64_t> samples) {
  return simulate(options, machine, [&](auto& s) { return s.step(data, samples); });
}

StepEstimate estimate_run(const TrainOptions& options, const CostModel& machine,
                          const Recipe& recipe, const RunInputs& inputs, int64_t most_steps) {
  const Dataset& train = inputs.data.train;
  const int64_t global = std::min(recipe.global_batch_size, train.size());
  const int64_t micro = std::min(recipe.micro_batch_size.size, train.size());
  Sampler sampler(train.size(), global, static_cast<uint64_t>(recipe.seed));
  MicroBatches data(train, micro, batch_options(recipe, inputs),
                    batch_ranks(options.ranks, options.mesh));
  const int64_t most = std::clamp<int64_t>(kMicroBatches * micro / global, 1, most_steps);
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
      mean.by_kind = sum(mean.by_kind, 1 / static_cast<double>(steps), one.by_kind);
    }
    return mean;
  });
}

StepEstimate estimate_largest(const TrainOptions& options, const CostModel& machine,
                              int64_t micro_batches) {
  Largest largest(options, enough_of(micro_batches, options));
  return simulate(options, machine, [&](auto& simulation) {
    return simulation.step_of(micro_batches, largest.data(), largest.ids());
  });
}

StepTrace trace_step(const TrainOptions& options, const CostModel& machine, MicroBatches& data,
                     std::span<const int64_t> samples) {
  return simulate(options, machine, [&](auto& s) { return s.traced(data, samples); });
}

StepTrace trace_run(const TrainOptions& options, const CostModel& machine, const Recipe& recipe,
                    const RunInputs& inputs) {
  const Dataset& train = inputs.data.train;
  Sampler sampler(train.size(), std::min(recipe.global_batch_size, train.size()),
                  static_cast<uint64_t>(recipe.seed));
  MicroBatches data(train, std::min(recipe.micro_batch_size.size, train.size()),
                    batch_options(recipe, inputs), batch_ranks(options.ranks, options.mesh));
  return trace_step(options, machine, data, sampler.ids(0));
}

StepTrace trace_largest(const TrainOptions& options, const CostModel& machine,
                        int64_t micro_batches) {
  if (options.mesh.pipeline == 1) {
    Largest largest(options, micro_batches);
    return trace_step(options, machine, largest.data(), largest.ids());
  }
  Largest largest(options, enough_of(micro_batches, options));
  StepTrace result;
  StagesSimulation stages(options, machine);
  result.estimate = stages.step_of(micro_batches, largest.data(), largest.ids(), &result.file);
  return result;
}

bool overlap_pays(const TrainOptions& options, const CostModel& machine, const Room& available) {
  TrainOptions apart = options, overlapped = options;
  apart.mesh.overlap = false;
  overlapped.mesh.overlap = true;
  const auto seconds = [&](const TrainOptions& o) {
    return estimate_largest(o, machine, o.pipeline.micro_batches).seconds;
  };
  if (seconds(overlapped) >= seconds(apart)) return false;
  overlapped.staging = false;  // a run drops it if it does not fit
  return stages_fit(overlapped, available);
}

}  // namespace capstan
