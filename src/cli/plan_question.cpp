#include "cli/plan_question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/visible.h"
#include "cli/plan_machine.h"
#include "cli/plan_search.h"
#include "machine/name.h"
#include "plan/automatic.h"
#include "recipe/nearest.h"
#include "run/run.h"

namespace capstan::cli {
namespace {

// What the user asked for, in the words of the command line.
std::string wish_name(const PlanOptions& o) {
  std::vector<std::string> given;
  if (o.deadline) given.push_back("--deadline");
  if (o.budget > 0) given.push_back("--budget");
  return fmt::format("{}", fmt::join(given, " and "));
}

// Of one rank, on the GPU that is planned for.
TrainOptions options_with(const Question& q, const Recipe& recipe) {
  const Planned& p = q.planned;
  TrainOptions o = p.inputs ? run_options(recipe, q.task, *p.inputs)
                            : worst_case_options(recipe, q.task, p.options.model);
  o.has_bf16 = p.options.has_bf16;
  o.precision = p.options.precision;
  return o;
}

// A number of GPUs or machines that the user asked for. LitGPT writes `devices: 1` and
// `num_nodes: 1` into all of its recipes, so one of a file asks for nothing.
struct AskedNumber {
  std::string key, place;  // "devices", "r.yaml:3:1"
  int64_t number = 1;

  bool of_litgpt() const { return place != kFromCommandLine && number == 1; }
  std::string text() const { return fmt::format("{}: {} ({})", key, number, place); }
};

std::vector<AskedNumber> asked_numbers(const Question& q) {
  std::vector<AskedNumber> all;
  const auto add = [&](const char* key, int64_t number) {
    const auto found = q.given.find(key);
    if (found != q.given.end()) all.push_back({key, found->second, number});
  };
  if (!q.recipe.devices.automatic) add("devices", q.recipe.devices.count);
  add("num_nodes", q.recipe.num_nodes);
  return all;
}

// A deadline and a budget choose how many GPUs of which machines, unless one is named.
void require_no_number_of_gpus(const Question& q, const std::string& wish) {
  for (const AskedNumber& asked : asked_numbers(q))
    require(asked.of_litgpt(), Fault::usage,
            "plan: {} chooses how many GPUs on how many machines, but there is {}; leave out "
            "--gpus and --nodes (devices, num_nodes), or name the GPU, too (--gpu)",
            wish, asked.text());
}

void tell_replaced_numbers(const Question& q, const Machines& chosen) {
  for (const AskedNumber& asked : asked_numbers(q)) {
    const int now = asked.key == "devices" ? chosen.devices : chosen.count;
    if (now != asked.number)
      log::info("{}: {} chose {} instead", asked.text(), wish_name(q.options), now);
  }
}

// Of a GPU without a row nothing can be planned; its name may be misspelt.
void warn_of_unknown_gpus(const Prices& prices, const GpuCatalogue& catalogue) {
  std::vector<std::string_view> ids;
  for (const GpuModel& gpu : catalogue.gpus) ids.push_back(gpu.id);
  std::string_view last;
  for (const Offer& offer : prices.offers) {
    const bool known = std::find(ids.begin(), ids.end(), offer.gpu) != ids.end();
    if (!known && offer.gpu != std::exchange(last, offer.gpu))
      log::warn(
          "prices: '{}' is no GPU of the catalogue, so that its instances are left out{}; "
          "$CAPSTAN_CATALOGUE names a file that may add it",
          visible(offer.gpu), did_you_mean(offer.gpu, ids));
  }
}

}  // namespace

void take_named_gpu(Question& q, const GpuModel& gpu) {
  q.gpu = gpu;
  take_gpu(q.recipe, q.options, gpu);
}

PlannedTask task_to_rent(const Question& q) {
  PlannedTask task = q.planned.task(q.recipe);
  task.recipe.precision = q.asked_precision;
  task.recipe.micro_batch_size = q.asked_micro_batch;
  task.recipe.strategy = q.asked_strategy;
  task.options_with = [&q](const Recipe& recipe) { return options_with(q, recipe); };
  return task;
}

std::vector<RentedRun> offers_of(const Question& q) {
  const std::string wish = wish_name(q.options);
  require(q.recipe.accelerator != Accelerator::cpu, Fault::usage,
          "plan: {} compares GPUs that can be rented, but the accelerator is cpu; leave one of "
          "them out",
          wish);
  if (!q.gpu) require_no_number_of_gpus(q, wish);
  require(q.planned.steps.has_value(), Fault::usage,
          "plan: {} needs the number of steps; give the data (--data.json_path, "
          "--data.train_data_path …), --train.max_steps or --train.max_tokens",
          wish);
  const GpuCatalogue catalogue = gpu_catalogue();
  const Prices known = prices();
  warn_of_unknown_gpus(known, catalogue);
  return rented_runs(task_to_rent(q), catalogue.gpus, known, q.wish,
                     q.gpu ? stated_by(q.options, *q.gpu) : Stated());
}

void choose_machine(Question& q, const std::vector<RentedRun>& offers) {
  const RentedRun* chosen = nearest_to(q.wish, offers);
  require(chosen != nullptr, Fault::does_not_fit,
          "does not fit on any machine that 'capstan plan where' has a price for; a smaller "
          "train.micro_batch_size, activations: auto or LoRA need less");
  if (that_meets(offers) == nullptr)
    log::warn("{}: no machine that can be rented meets it; this plan is for the {}",
              wish_name(q.options), in_time(q.wish, *chosen) ? "cheapest one" : "fastest one");
  tell_replaced_numbers(q, chosen->machines);
  take_named_gpu(q, chosen->gpu);
  q.recipe.devices = {.count = chosen->machines.devices};
  q.recipe.num_nodes = chosen->machines.count;
  q.recipe.strategy = chosen->strategy();
  if (const Prices known = prices(); chosen->machines.count > 1) {
    q.options.network = known.between.bytes_per_second() / chosen->machines.devices / 1e9;
    q.options.network_origin = fmt::format("{} ({})", known.between.origin, known.between.date);
  }
  q.chose_machine = true;
}

void settle_automatic(Question& q, const Machines& machines) {
  const Planned& p = q.planned;
  const bool here = !q.gpu && p.options.device == Device::cuda && cuda_present();
  const Machines known =
      with_known_times(machines, q.recipe, p.options, here ? machine_name(Device::cuda) : "");
  const auto chosen = best_choice(q.recipe, p.inputs ? &*p.inputs : nullptr, known,
                                  [&](const Recipe& r) { return options_with(q, r); });
  if (!chosen) return;
  const bool batch = q.recipe.micro_batch_size.automatic;
  // Without data the basis names the batch, and then the GPU.
  std::string gpu;
  if (!p.inputs) gpu = p.basis.substr(plan_for(q.recipe, q.task).basis.size());
  q.recipe.micro_batch_size = chosen->micro_batch_size;
  if (!p.inputs) q.planned.basis = plan_for(q.recipe, q.task).basis + gpu;
  if (strategy_is_open(q.recipe, machines.ranks())) q.recipe.strategy = chosen->strategy;
  q.planned.options = options_with(q, q.recipe);
  if (batch)
    q.planned.basis += fmt::format("; train.micro_batch_size auto is {}", chosen->micro_batch_size);
}

std::string run_command(const Question& q, const Fit& fit) {
  std::vector<std::pair<std::string, std::string>> keys = {
      {"devices", std::to_string(q.recipe.devices.count)},
      {"num_nodes", std::to_string(q.recipe.num_nodes)}};
  if (fit.options.ranks.size > 1)
    keys.emplace_back("strategy", std::string(name_of(q.recipe.strategy)));
  keys.emplace_back("precision", std::string(name_of(fit.options.precision)));
  return command_of(q.words, keys, q.task, fit.options);
}

}  // namespace capstan::cli
