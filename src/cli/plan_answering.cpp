#include "cli/plan_answering.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "cli/launch.h"
#include "cli/plan_machine.h"
#include "cli/plan_variants.h"
#include "plan/data_sheet.h"
#include "plan/fewest_gpus.h"
#include "plan/history.h"
#include "run/run.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

void set_ranks_of(TrainOptions& options, const Recipe& recipe) {
  const int64_t ranks = require_ranks(recipe);
  // Threads read each other's memory where it lies; others need room to sum in.
  const bool room = recipe.num_nodes > 1;
  set_ranks(options, recipe, {0, static_cast<int>(ranks)}, {.room = room},
            static_cast<int>(recipe.num_nodes));
}

// The record of this device and precision, with one or several ranks as here, if it was measured.
std::optional<TrackRecord> record_here(const Calibration& c, const TrainOptions& options) {
  if (c.from_data_sheet || history_path().empty()) return std::nullopt;
  const auto history = read_history(history_path());
  const std::string label = label_of(c);
  return record_of(history, {.device = c.name,
                             .precision = name_of(options.precision),
                             .calibration = label,
                             .ranks = options.ranks.size});
}

Time time_of(const StepEstimate& step, const Question& q, const Calibration& calibration) {
  Time t{.calibration = calibration, .step = step};
  const int ranks = q.planned.options.ranks.size;
  const auto machines = static_cast<int>(q.recipe.num_nodes);
  if (all_measured(calibration, ranks, machines))
    t.record = record_here(calibration, q.planned.options);
  if (q.options.correct) {
    t.correction = correction(t.record);
    t.asked_to_correct = true;
    t.step.slow(t.correction);
  }
  if (q.planned.steps) t.run_seconds = t.step.seconds * static_cast<double>(*q.planned.steps);
  t.range = uncertainty_of(calibration, ranks, machines, t.record, t.correction);
  if (calibration.from_data_sheet) t.pytorch = pytorch_ratio(q.planned.options);
  return t;
}

Largest largest_of(const Question& q, const Fit& fit, const Room& available) {
  TrainOptions bare = q.planned.options;
  bare.staging = false;
  // The largest is at least what fits, however the search went.
  const BatchLimits& planned_for = q.planned.options.limits;
  const auto at_least = [&](int64_t n) { return fit.fits() ? n : 0; };
  return {
      std::max(at_least(planned_for.documents), largest_micro_batch(bare, available)),
      std::max(at_least(planned_for.longest),
               largest_sequence(bare, available,
                                q.planned.inputs ? std::nullopt : q.recipe.eval_max_new_tokens))};
}

// Machines like those of the plan, with other numbers of GPUs.
Machines machines_like(const Question& q, const Answers& a, int devices, int count) {
  if (q.gpu) return machines_with(*q.gpu, devices, count, a.stated);
  return {.devices = devices,
          .count = count,
          .available = available_for(q.options, Device::cuda, devices).room};
}

// Adapters, and more GPUs: what the changes of a fit leave out.
void add_remedies(const Question& q, Answers& a) {
  constexpr int kMostAdded = 64;
  const PlannedTask task = q.planned.task(q.recipe);
  constexpr Allowed kAdapters = {.lora = true, .qlora = true};
  for (const Variant& v : variants_of(q.planned, q.recipe, q.task, kAdapters, false))
    if (auto remedy = remedy_with(v.what, task, v.options, a.machines))
      a.remedies.push_back(std::move(*remedy));
  auto known = static_cast<int>(kMostPlannedRanks) + 1;  // GPUs that are enough
  for (const Change& change : a.fit.changes)
    if (change.what.starts_with("devices")) known = std::min(known, change.options.ranks.size);
  if (q.gpu && a.machines.ranks() == 1)
    for (const ScalePoint& point : scaling(task, *q.gpu, kUsualGpus, kMostAdded, a.stated)) {
      if (!point.run.fits) continue;
      known = point.machines.ranks();
      a.remedies.push_back(
          {fmt::format("{} ({})", named_gpus(point.machines.devices, point.machines.count),
                       strategy_name(point.run.options.sharding)),
           point.run.ranks.most, point.run.step});
      break;
    }
  if (task.options.device == Device::cuda)
    if (auto fewest = fewest_gpus(task, kUsualGpus, known - 1, [&](int devices, int count) {
          return machines_like(q, a, devices, count);
        })) {
      const MeshPlan& plan = fewest->plan;
      a.remedies.push_back({fewest->what, plan.bytes, {}});
      if (plan.step.seconds > 0) a.remedies.back().step = plan.step;
      a.fit.changes.push_back(
          {fewest->what, plan.options, plan.choice.micro_batch_size, plan.bytes});
    }
  fastest_first(a.remedies);
}

}  // namespace

bool take_words(Question& q, const Arguments& words) {
  const PlanOptions& o = q.options;
  std::optional<Task> given = command_named(o.command);
  q.words = with_keys(words, given);
  q.task = given ? *given : task_of(q.words);
  Recipe defaults = defaults_of(q.task);
  if (o.search || !o.machines.empty()) defaults.micro_batch_size = 1;  // the search chooses it
  const auto recipe = recipe_from(q.words, q.task, "", defaults, Inputs::of_plan, &q.given);
  if (!recipe) return false;
  q.recipe = *recipe;
  q.asked_precision = recipe->precision;
  q.asked_micro_batch = recipe->micro_batch_size;
  q.asked_strategy = recipe->strategy;
  return true;
}

void plan_recipe(Question& q) {
  q.planned = plan_for(q.recipe, q.task);
  q.planned.default_length =
      q.task == Task::pretrain && q.recipe.max_tokens && !q.given.contains("train.max_tokens");
}

void settle_machine(Question& q) {
  Planned& planned = q.planned;
  planned.elsewhere = q.gpu.has_value();
  if (q.gpu) {
    warn_of_large_machines(q.recipe);
    planned.options.has_bf16 = computes_bf16(q.gpu->capability);
    planned.basis +=
        fmt::format(", on {} ({}{}) by the catalogue of {}", q.gpu->id, format_bytes(q.gpu->bytes),
                    q.gpu->mark({"memory", "usable"}), q.gpu->date);
  } else {
    require_precision(planned.options.precision, planned.options.device);
  }
  // Ranks on a CPU share its cores: each needs memory for its own threads alone.
  if (const auto ranks = static_cast<int>(ranks_per_machine(q.recipe));
      ranks > 1 && planned.options.device == Device::cpu)
    omp_set_num_threads(std::max(1, (num_threads() + ranks - 1) / ranks));
}

std::string why_unknown(const Question& q) {
  if (q.gpu)
    return fmt::format(
        "the catalogue has no rate of {} products for {}; another precision, or "
        "matmul_precision: highest, may have one",
        type_of_products(q.planned.options), q.gpu->id);
  return "those of this machine are unknown; run 'capstan bench' (for several ranks also 'capstan "
         "bench comm'), or name a GPU of the catalogue (--gpu)";
}

Answers answer(Question& q, std::vector<RentedRun> offers) {
  Planned& planned = q.planned;
  const auto calibration = calibration_for(q.options, planned.options, q.recipe, q.gpu);
  const auto available =
      available_for(q.options, planned.options.device, ranks_per_machine(q.recipe));
  Answers a;
  a.gpu = q.gpu;
  a.machines = {.devices = static_cast<int>(ranks_per_machine(q.recipe)),
                .count = static_cast<int>(q.recipe.num_nodes),
                .calibration = calibration};
  if (calibration) a.machines.network = network_for(q.options, q.gpu, *calibration, q.recipe);
  if (q.gpu) a.stated = stated_by(q.options, *q.gpu);
  a.network_origin = q.options.network_origin;
  a.machines.available = available.room;
  settle_automatic(q, a.machines);
  set_ranks_of(planned.options, q.recipe);
  // A calibration that the user named and that does not suit is an error.
  if (calibration && !q.options.calibration.empty()) cost_model(*calibration, planned.options);
  require(q.options.trace.empty() ||
              (calibration && (a.machines.network || planned.options.ranks.size == 1)),
          Fault::usage, "plan: --trace shows times, and {}", why_unknown(q));
  a.cuda_share = available.cuda_share;
  if (planned.options.choose_overlap && a.machines.network)
    planned.options.mesh.overlap =
        overlap_pays(connected(planned.options, a.machines.network),
                     cost_model(*calibration, planned.options), available.room);
  a.fit = fit_of(planned.options, q.recipe.micro_batch_size.size, available.room);
  planned.options.ranks.rank = a.fit.options.ranks.rank;
  planned.ranks = bytes_of(a.fit.needs);
  if (planned.options.ranks.size > 1) a.classes = rank_classes(a.fit.options, a.fit.needs);
  a.largest = largest_of(q, a.fit, available.room);
  a.peak_flops = peak_of(q.gpu, planned.options);
  const PlannedTask task = planned.task(q.recipe);
  if (a.fit.fits()) {
    if (const auto step = estimate(task, a.fit.options, a.machines))
      a.time = time_of(*step, q, *calibration);
  } else {
    a.remedies = remedies(task, a.fit, a.machines);
    add_remedies(q, a);
  }
  if (a.time && a.time->run_seconds && q.gpu && a.can_be_rented()) {
    const double hours = *a.time->run_seconds / 3600;
    a.cost = run_cost(prices(), q.gpu->id, a.machines.devices, a.machines.count,
                      {a.time->range.low * hours, hours, a.time->range.high * hours});
  }
  a.needs = needs_of(planned, q.recipe, q.task, a);
  a.offers = std::move(offers);
  a.wish = q.wish;
  if (q.chose_machine) a.command = run_command(q, a.fit);
  return a;
}

void answer_more(const Question& q, Answers& a) {
  const PlannedTask task = q.planned.task(q.recipe);
  if (q.gpu)
    a.scaling = scaling(task, *q.gpu, std::max(kUsualGpus, a.machines.devices),
                        std::max(4 * kUsualGpus, 2 * a.machines.ranks()), a.stated);
  if (a.offers.empty() && q.planned.steps && q.planned.options.device == Device::cuda)
    a.offers = rented_runs(task_to_rent(q), gpu_catalogue().gpus, prices(), {}, a.stated);
  if (a.time) a.sensitivities = sensitivities(task, a.fit.options, a.machines);
  // Offers are of other machines, of which the record says nothing.
  if (!a.time) return;
  for (ScalePoint& point : a.scaling)
    if (point.run.step) point.run.step->slow(a.time->correction);
  for (Sensitivity& s : a.sensitivities) s.step.slow(a.time->correction);
}

}  // namespace capstan::cli
