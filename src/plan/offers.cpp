#include "plan/offers.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "plan/automatic.h"

namespace capstan {
namespace {

// With the micro-batch that a run there chooses, which knows no times that were not measured;
// false: none fits.
bool settle_batch(PlannedTask& task, const GpuModel& gpu, Machines machines) {
  if (!all_measured(*machines.calibration, machines.ranks(), machines.count))
    machines.calibration.reset();
  const auto options_with = [&](const Recipe& recipe) {
    PlannedTask there = task;
    there.recipe = recipe;
    there.options = task.options_with(recipe);
    return on_gpu(there, gpu);
  };
  const auto choice = best_choice(task.recipe, task.inputs, machines, options_with);
  if (!choice) return false;
  task.recipe.micro_batch_size = choice->micro_batch_size;
  task.options = options_with(task.recipe);
  return true;
}

std::optional<RentedRun> rented(const PlannedTask& task, const GpuModel& gpu, int machines,
                                int gpus, const Stated& stated) {
  RentedRun r{.gpu = gpu, .machines = machines_with(gpu, gpus, machines, stated)};
  const bool open = task.recipe.micro_batch_size.automatic;
  const auto run_with = [&](const Strategy& strategy) -> std::optional<RunThere> {
    PlannedTask there = task;
    there.recipe.strategy = strategy;
    there.options = on_gpu(task, gpu);
    if (open && !settle_batch(there, gpu, r.machines)) return std::nullopt;
    return run_on(there, r.machines);
  };
  auto run = run_with(task.recipe.strategy);
  // The command names the strategy, and so the run chooses its micro-batch with that.
  if (open && run && strategy_is_open(task.recipe, r.machines.ranks()))
    run = run_with(strategy_of(run->options));
  if (!run || !run->step) return std::nullopt;
  const auto data_ranks = batch_ranks(run->options.ranks, run->options.mesh).size;
  if (data_ranks > samples_of_step(task)) return std::nullopt;  // some would be idle
  r.run = *run;
  return r;
}

// What so many steps take and cost. Each instance has a price.
void pay(RentedRun& r, int64_t steps, const Prices& prices, const Wish& wish) {
  r.seconds = r.run.step->seconds * static_cast<double>(steps);
  const Uncertainty range =
      uncertainty_of(*r.machines.calibration, r.machines.ranks(), r.machines.count);
  r.longest_seconds = range.high * r.seconds;
  const double hours = r.seconds / 3600;
  const auto cost = run_cost(prices, r.gpu.id, r.machines.devices, r.machines.count,
                             {range.low * hours, hours, range.high * hours});
  r.dollars = cost->dollars;
  r.instances = cost->of_machine;
  if (wish.any()) r.meets = in_time(wish, r) && (!wish.dollars || r.dollars.high <= *wish.dollars);
}

// Of those that cost less or as much, all take longer.
void mark_front(std::vector<RentedRun>& cheapest_first) {
  double least = std::numeric_limits<double>::infinity();
  for (RentedRun& r : cheapest_first) {
    r.front = r.seconds < least;
    least = std::min(least, r.seconds);
  }
}

}  // namespace

Strategy RentedRun::strategy() const {
  return strategy_of(run.options);
}

std::vector<RentedRun> rented_runs(const PlannedTask& task, const std::vector<GpuModel>& gpus,
                                   const Prices& prices, const Wish& wish, const Stated& stated) {
  require(task.steps.has_value(), Fault::bug, "rented_runs: the number of steps is not known");
  std::vector<RentedRun> all;
  for (const GpuModel& gpu : gpus) {
    int largest = 0;
    for (const Offer& offer : prices.offers)
      if (offer.gpu == gpu.id) largest = std::max(largest, offer.gpus);
    for (const Offer& offer : prices.offers) {
      if (offer.gpu != gpu.id) continue;
      for (const int machines : {1, 2, 4}) {
        if (machines > 1 && (offer.gpus < largest || largest == 1)) break;
        Stated known = stated.gpu == gpu.id ? stated : Stated{.gpu = gpu.id};
        if (machines > 1 && !known.across) {
          if (prices.between.gigabits == 0) break;  // nobody knows what joins them
          known.across = prices.between.bytes_per_second() / offer.gpus;
        }
        if (auto r = rented(task, gpu, machines, offer.gpus, known)) all.push_back(std::move(*r));
      }
    }
  }
  for (RentedRun& r : all) pay(r, *task.steps, prices, wish);
  std::stable_sort(all.begin(), all.end(), [](const RentedRun& a, const RentedRun& b) {
    if (a.dollars.expected != b.dollars.expected) return a.dollars.expected < b.dollars.expected;
    return a.seconds < b.seconds;
  });
  mark_front(all);
  return all;
}

bool in_time(const Wish& wish, const RentedRun& run) {
  return !wish.seconds || run.longest_seconds <= *wish.seconds;
}

const RentedRun* nearest_to(const Wish& wish, const std::vector<RentedRun>& runs) {
  const auto timely =
      std::find_if(runs.begin(), runs.end(), [&](const RentedRun& r) { return in_time(wish, r); });
  if (timely != runs.end()) return &*timely;
  const auto fastest = std::min_element(
      runs.begin(), runs.end(),
      [](const RentedRun& a, const RentedRun& b) { return a.seconds < b.seconds; });
  return fastest == runs.end() ? nullptr : &*fastest;
}

const RentedRun* that_meets(const std::vector<RentedRun>& runs) {
  const auto found = std::find_if(runs.begin(), runs.end(),
                                  [](const RentedRun& r) { return r.meets.value_or(true); });
  return found == runs.end() ? nullptr : &*found;
}

}  // namespace capstan
