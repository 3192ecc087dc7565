#include "bench/step_times.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "base/rng.h"
#include "bench/op_timer.h"
#include "plan/predict.h"

namespace capstan {
namespace {

// A step with its data, and how it is trained.
struct Training {
  Training(const StepSetup& setup, const BenchStep& s)
      : samples(random_documents(s.micro_batches * s.documents, s.length, s.model.vocab)),
        batches{.max_seq_length = s.length, .vocab = s.model.vocab},
        documents(s.documents) {
    options.device = setup.device;
    options.model = s.model;
    options.precision = setup.precision;
    options.tf32 = setup.tf32;
    options.recompute = s.recompute;
    if (s.sgd) options.optimizer.kind = OptimizerKind::sgd;
    options.single_micro_batch = s.micro_batches == 1;
    options.schedule = {.lr = 1e-4, .decay = Schedule::Decay::constant};
    options.limits = limits_of(samples, s.documents, batches);
  }

  Dataset samples;
  BatchOptions batches;
  int64_t documents;
  TrainOptions options;
};

std::array<CallTotal, kOpKinds> totals_of(const Queue& q) {
  std::array<CallTotal, kOpKinds> all;
  for (const OpTotal& r : q.totals()) {
    CallTotal& t = all[static_cast<size_t>(r.kind)];
    t.calls += static_cast<double>(r.calls);
    t.flops += r.cost.flops;
    t.bytes += r.cost.bytes;
    t.seconds += r.seconds;
  }
  return all;
}

}  // namespace

Dataset random_documents(int64_t count, int64_t length, int64_t vocab) {
  Dataset data;
  const Rng rng({.seed = 1});
  uint64_t draw = 0;
  for (int64_t d = 0; d < count; ++d) {
    std::vector<int32_t> tokens(static_cast<size_t>(length) + 1);
    for (auto& t : tokens)
      t = static_cast<int32_t>(rng.below(draw++, static_cast<uint64_t>(vocab)));
    data.add(tokens, 0);
  }
  return data;
}

bool step_fits(const StepSetup& setup, const BenchStep& step, const Room& room) {
  return fits(Trainer::plan(Training(setup, step).options), room);
}

StepTimes time_step(const StepSetup& setup, const BenchStep& step, double seconds,
                    double patience) {
  const Training training(setup, step);
  const RunPlan plan = Trainer::plan(training.options);
  Arena arena(plan.device, setup.device), host(plan.host, Arena::Pinned{});
  Queue q(setup.device, arena, host);
  Trainer trainer(q, training.options);
  trainer.params().initialize(q, 1);
  StepBatches batches(training.samples, training.samples.size(), training.documents, 1,
                      training.batches);
  // The median: what other programs do to some of them does not count.
  std::vector<StepTimes> all;
  int64_t number = 0;
  const auto once = [&] {
    q.reset_totals();
    const auto start = std::chrono::steady_clock::now();
    trainer.step(batches.of(number), number, &batches);
    q.synchronize();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    all.push_back({took.count(), totals_of(q)});
    ++number;
  };
  median_seconds(seconds, once, patience);
  if (all.size() > 1) all.erase(all.begin());  // the first step also tunes products
  const auto middle = all.begin() + std::ssize(all) / 2;
  std::nth_element(all.begin(), middle, all.end(),
                   [](const StepTimes& a, const StepTimes& b) { return a.seconds < b.seconds; });
  return *middle;
}

double predict_step(const StepSetup& setup, const BenchStep& step, const Calibration& calibration) {
  const Training training(setup, step);
  std::vector<int64_t> ids(static_cast<size_t>(training.samples.size()));
  std::iota(ids.begin(), ids.end(), 0);
  MicroBatches data(training.samples, training.documents, training.batches);
  return estimate_step(training.options, cost_model(calibration, training.options), data, ids)
      .seconds;
}

std::optional<StepCosts> step_costs(std::span<const StepTimes> steps) {
  if (steps.empty()) return std::nullopt;
  StepCosts costs;
  for (const StepTimes& s : steps) costs.seconds += s.seconds;
  for (size_t i = 0; i < kOpKinds; ++i) {
    std::vector<CallTotal> calls;
    for (const StepTimes& s : steps) calls.push_back(s.calls[i]);
    costs.calls[i] = fit_call_cost(calls);
    for (const CallTotal& t : calls) costs.predicted += costs.calls[i].of(t);
  }
  return costs;
}

std::string name_of(const BenchStep& s) {
  return fmt::format("step, {} x {} x {} tokens, {} channels", s.micro_batches, s.documents,
                     s.length, s.model.hidden);
}

}  // namespace capstan
