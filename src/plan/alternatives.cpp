#include "plan/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace capstan {
namespace {

// The machines with the ranks of a change.
Machines with_ranks(Machines machines, const TrainOptions& options) {
  if (options.ranks.size == machines.ranks() || !machines.network) return machines;
  machines.count = options.machines;
  machines.devices = options.ranks.size / options.machines;
  // What was measured as a whole has one rate.
  if (std::isfinite(machines.network->across.bytes_per_second))
    machines.network->ranks_per_machine = machines.devices;
  return machines;
}

std::optional<StepEstimate> with_change(const PlannedTask& task, const Change& change,
                                        const Machines& machines) {
  PlannedTask changed = task;
  if (change.micro_batch) changed.recipe.micro_batch_size = *change.micro_batch;
  return estimate(changed, change.options, with_ranks(machines, change.options));
}

// Kinds of ops that share a resource.
struct Resource {
  const char* name;
  std::vector<OpKind> kinds;
};

void slow_down(PrecisionCosts& all, OpKind kind, double factor) {
  for (auto& [precision, costs] : all) {
    CallCost& call = costs.calls[static_cast<size_t>(kind)];
    call.per_call *= factor;
    call.per_flop *= factor;
    call.per_byte *= factor;
  }
}

void slow_down(Calibration& c, const Resource& part, double factor) {
  for (const OpKind kind : part.kinds) {
    for (auto& [type, rates] : c.types) rates.slow(kind, factor);
    slow_down(c.precisions, kind, factor);
    for (auto& [ranks, costs] : c.together) slow_down(costs, kind, factor);
    if (kind == OpKind::copy) c.bytes_per_second /= factor;
  }
}

}  // namespace

std::vector<Remedy> remedies(const PlannedTask& task, const Fit& fit, const Machines& machines) {
  std::vector<Remedy> all;
  for (const Change& change : fit.changes)
    all.push_back({change.what, change.bytes, with_change(task, change, machines)});
  fastest_first(all);
  return all;
}

std::optional<Remedy> remedy_with(const std::string& what, const PlannedTask& task,
                                  const TrainOptions& options, const Machines& machines) {
  TrainOptions o = options;
  o.staging = false;  // saving may always wait
  Fit fit = judge(o, machines.available);
  std::string name = what;
  if (!fit.fits() && !o.recompute_to_fit) {
    o.recompute_to_fit = true;
    fit = judge(o, machines.available);
    name += fmt::format(" with activations: {}", name_of(fit.options.recompute));
  }
  if (!fit.fits()) return std::nullopt;
  return Remedy{std::move(name), bytes_of(fit.needs).most, estimate(task, fit.options, machines)};
}

void fastest_first(std::vector<Remedy>& remedies) {
  const auto speed = [](const Remedy& r) { return r.step ? r.step->tokens_per_second() : 0; };
  std::stable_sort(remedies.begin(), remedies.end(),
                   [&](const Remedy& a, const Remedy& b) { return speed(a) > speed(b); });
}

std::vector<ScalePoint> scaling(const PlannedTask& task, const GpuModel& gpu, int per_machine,
                                int most, const Stated& stated) {
  std::vector<ScalePoint> points;
  double first = 0;  // tokens/s for each GPU of the fewest that fit
  for (int ranks = 1; ranks <= most; ranks *= 2) {
    const int devices =
        std::min(ranks, static_cast<int>(std::bit_floor(static_cast<unsigned>(per_machine))));
    const Machines machines = machines_with(gpu, devices, ranks / devices, stated);
    auto run = run_on(task, machines);
    if (!run) continue;  // fewer than the mesh needs
    const auto data_ranks = batch_ranks(run->options.ranks, run->options.mesh).size;
    if (data_ranks > samples_of_step(task)) break;
    ScalePoint point{machines, std::move(*run)};
    if (point.run.step) {
      const double each = point.run.step->tokens_per_second() / ranks;
      if (first == 0) first = each;
      point.efficiency = each / first;
    }
    if (!points.empty() && !points.back().run.fits && !point.run.fits) points.pop_back();
    points.push_back(std::move(point));
  }
  return points;
}

std::vector<Sensitivity> sensitivities(const PlannedTask& task, const TrainOptions& options,
                                       const Machines& machines) {
  constexpr double kSlower = 1 / 0.9;
  const std::array<Resource, 5> parts = {
      {{"matrix products", {OpKind::product, OpKind::head}},
       {"attention", {OpKind::attention, OpKind::attention_backward}},
       {"memory, for norms and other small ops", {OpKind::elementwise}},
       {"memory, for the optimizer", {OpKind::optimizer}},
       {"memory, for copies", {OpKind::copy}}}};
  std::vector<Sensitivity> all;
  const auto base = estimate(task, options, machines);
  if (!base) return all;
  const auto add = [&](std::string what, const Machines& slower) {
    const auto step = estimate(task, options, slower);
    if (!step) return;
    const double change = step->seconds / base->seconds - 1;
    if (std::abs(change) >= 5e-4) all.push_back({std::move(what), *step, change});
  };
  for (const Resource& part : parts) {
    Machines slower = machines;
    slow_down(*slower.calibration, part, kSlower);
    add(fmt::format("{} 10% slower", part.name), slower);
  }
  if (options.ranks.size > 1) {
    Machines slower = machines;
    const bool two_levels = machines.count > 1 && machines.network->ranks_per_machine > 0;
    slower.network->bytes_per_second /= 2;
    add(two_levels ? "links within a machine half as fast" : "links half as fast", slower);
    if (two_levels) {
      slower = machines;
      slower.network->across.bytes_per_second /= 2;
      add("links between machines half as fast", slower);
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Sensitivity& a, const Sensitivity& b) { return a.change > b.change; });
  return all;
}

}  // namespace capstan
