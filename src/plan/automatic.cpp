#include "plan/automatic.h"

#include <algorithm>

#include "plan/data_sheet.h"

namespace capstan {
namespace {

constexpr int64_t kSampled = 2;  // steps of the data, for each choice

// Whether `a` is better than what was best so far; `first` is the smallest.
bool better(const RunThere& a, const RunThere& best, const RunThere& first) {
  if (a.step && best.step)
    return a.step->seconds / a.step->tokens < best.step->seconds / best.step->tokens;
  return name_of(a.options.recompute) == name_of(first.options.recompute);
}

}  // namespace

bool strategy_is_open(const Recipe& recipe, int ranks) {
  const int64_t sharing =
      recipe.tensor_parallel * recipe.context_parallel * recipe.pipeline_parallel;
  return recipe.strategy.kind == Strategy::automatic && ranks > sharing;
}

Machines with_known_times(Machines machines, const Recipe& recipe, const TrainOptions& options,
                          std::string_view gpu) {
  std::optional<Calibration>& known = machines.calibration;
  const auto has_rates = [&] { return known && known->types.contains(type_of_products(options)); };
  const int ranks = machines.ranks();
  if (!has_rates()) known.reset();
  if (known && all_measured(*known, ranks, machines.count)) return machines;
  const bool by_sheet = options.device == Device::cuda && strategy_is_open(recipe, ranks);
  if (by_sheet && known && machines.network) return machines;
  const GpuCatalogue catalogue = gpu_catalogue();
  const GpuModel* const model = by_sheet && !gpu.empty() ? catalogue.reported_as(gpu) : nullptr;
  if (model != nullptr && !known) known = calibration_of(*model, ranks);
  if (model == nullptr || !has_rates()) {
    known.reset();
    return machines;
  }
  machines.network = links_of(*model, *known, machines.devices, machines.count);
  return machines;
}

std::optional<AutomaticChoice> best_choice(
    const Recipe& recipe, const RunInputs* inputs, const Machines& machines,
    const std::function<TrainOptions(const Recipe&)>& options_with) {
  const bool batch = recipe.micro_batch_size.automatic;
  const bool strategy = strategy_is_open(recipe, machines.ranks());
  if (!batch && !(strategy && machines.calibration)) return std::nullopt;
  PlannedTask task{.recipe = recipe, .options = {}, .inputs = inputs};
  task.sampled_steps = kSampled;
  if (strategy && !machines.calibration) task.recipe.strategy.kind = Strategy::zero3;
  std::optional<AutomaticChoice> chosen;
  std::optional<RunThere> first, best;
  const int64_t global = recipe.global_batch_size;
  for (int64_t micro = recipe.micro_batch_size.size; global % micro == 0; micro *= 2) {
    task.recipe.micro_batch_size = micro;
    task.options = options_with(task.recipe);
    auto run = run_on(task, machines);
    if (!run || !run->fits) break;
    const int64_t data_ranks = batch_ranks(run->options.ranks, run->options.mesh).size;
    if (best && micro * data_ranks > global) break;
    if (!first) first = run;
    if (!best || better(*run, *best, *first)) {
      chosen = {micro, strategy_of(run->options)};
      best = std::move(run);
    }
    if (!batch) break;
  }
  return chosen;
}

}  // namespace capstan
