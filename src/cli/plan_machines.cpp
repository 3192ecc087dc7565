#include "cli/plan_machines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/log.h"
#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"
#include "cli/command_line.h"
#include "cli/plan_answers.h"
#include "cli/plan_search.h"
#include "cli/plan_tables.h"
#include "cli/plan_variants.h"
#include "plan/alternatives.h"
#include "plan/fit.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

using Json = nlohmann::ordered_json;

// How the run trains best on some machines, or what it lacks there.
struct Row {
  NamedMachines named;
  Machines machines;
  std::optional<MeshPlan> best = {};      // the fastest that fits
  std::optional<StepEstimate> step = {};  // of it, with the data if they are known
  std::string why = {};                   // if none
  std::vector<std::string> fits_with = {};
  std::string command = {};

  std::string name() const {
    return fmt::format("{}{} × {}{}", named.count > 1 ? fmt::format("{} × ", named.count) : "",
                       named.devices, named.gpu.id, unsourced() ? "†" : "");
  }
  // True if the times come from catalogue figures that no source backs.
  bool unsourced() const {
    return best && machines.calibration->from_data_sheet && !named.gpu.unsourced.empty();
  }
  double speed() const { return step ? step->tokens_per_second() : 0; }
};

// Takes the number and its x from the beginning of "8xa100-40"; none if there is none.
std::optional<int> take_number(std::string_view& text) {
  constexpr std::string_view kTimes = "×";
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view rest = text.substr(static_cast<size_t>(end - text.data()));
  const size_t times = rest.starts_with('x') ? 1 : rest.starts_with(kTimes) ? kTimes.size() : 0;
  if (error != std::errc() || times == 0) return std::nullopt;
  text = rest.substr(times);
  return number;
}

// The GPU of this name, or whose name begins so. Machines with four GPUs and more usually have
// those that a link joins.
const GpuModel& gpu_named(std::string_view name, int devices, const GpuCatalogue& catalogue) {
  constexpr int kUsuallyLinked = 4;
  std::vector<const GpuModel*> found;
  for (const GpuModel& gpu : catalogue.gpus) {
    if (gpu.id == name) return gpu;
    if (!name.empty() && gpu.id.starts_with(name)) found.push_back(&gpu);
  }
  if (found.empty()) return catalogue.named(std::string(name));
  const auto linked = std::find_if(found.begin(), found.end(), [](const GpuModel* gpu) {
    return std::string_view(gpu->id).ends_with("-sxm");
  });
  if (devices >= kUsuallyLinked && linked != found.end()) std::iter_swap(found.begin(), linked);
  if (found.size() > 1) {
    std::vector<std::string> others;
    for (size_t i = 1; i < found.size(); ++i) others.push_back(found[i]->id);
    log::info("{} is taken for {}; others are {}", visible(name), found[0]->id,
              fmt::join(others, ", "));
  }
  return *found[0];
}

// The search on these machines.
MeshQuestion question_on(const PlannedTask& task, const Row& row, TrainOptions options) {
  MeshQuestion q{.recipe = task.recipe,
                 .options = std::move(options),
                 .devices = row.machines.devices,
                 .machines = row.machines.count,
                 .network = row.machines.network.value_or(Network()),
                 .calibration = *row.machines.calibration,
                 .available = row.machines.available};
  q.recipe.devices = {.count = row.machines.devices};
  q.recipe.num_nodes = row.machines.count;
  q.recipe.precision = q.options.precision;
  q.network.room = row.machines.count > 1;
  return q;
}

// What would make a run fit that no mesh makes fit: changes of the recipe, and adapters.
std::vector<std::string> ways_to_fit(const Question& q, const MeshQuestion& asked) {
  TrainOptions options = asked.options;
  Recipe recipe = asked.recipe;
  recipe.strategy = Strategy::zero3;
  set_ranks(options, recipe, {0, asked.devices * asked.machines}, {.room = asked.network.room},
            asked.machines);
  options.recompute = Recompute::block;
  std::vector<std::string> all = fit_of(options, 1, asked.available).names_of_changes();
  // These are all GPUs that the machine has.
  std::erase_if(all, [](const std::string& change) { return change.starts_with("devices: "); });
  // Changes that another recipe has.
  constexpr Allowed kAdapters = {.lora = true, .qlora = true};
  for (const Variant& v : variants_of(q.planned, q.recipe, q.task, kAdapters, false)) {
    MeshQuestion with = asked;
    with.options.lora = v.options.lora;
    with.options.quantize = v.options.quantize;
    if (search_meshes(with, 1).best.empty()) continue;
    all.push_back(v.what);
    break;  // with more adapters than needed it is another run
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> keys_of(const Row& row) {
  auto keys = row.best->keys();
  keys.emplace_back("devices", std::to_string(row.machines.devices));
  keys.emplace_back("num_nodes", std::to_string(row.machines.count));
  keys.emplace_back("precision", name_of(row.best->options.precision));
  return keys;
}

Row answer_on(const Question& q, const PlannedTask& task, const NamedMachines& named) {
  Row row{.named = named, .machines = machines_with(named.gpu, named.devices, named.count)};
  const TrainOptions options = on_gpu(task, named.gpu);
  const std::string_view type = type_of_products(options);
  if (!row.machines.calibration->types.contains(std::string(type))) {
    row.why = fmt::format("it has no {} products, or nobody knows how fast they are", type);
    return row;
  }
  const MeshQuestion asked = question_on(task, row, options);
  MeshSearch found = search_meshes(asked, 1);
  if (found.best.empty()) {
    row.why = fmt::format("each GPU needs at least {}, and has {}", format_bytes(found.least_bytes),
                          format_bytes(asked.available.device));
    row.fits_with = ways_to_fit(q, asked);
    return row;
  }
  row.best = std::move(found.best[0]);
  PlannedTask there = task;
  there.recipe = row.best->choice.in(asked.recipe);
  row.step = estimate(there, row.best->options, row.machines);
  if (!row.step) row.step = row.best->step;
  row.command = command_of(q.words, keys_of(row), q.task, row.best->options);
  return row;
}

std::string row_text(const Row& row, int64_t width, const std::optional<int64_t>& steps) {
  if (!row.best) {
    std::string s = wrapped(fmt::format("does not fit: {}", row.why),
                            fmt::format("{:<{}} ", row.name(), width));
    if (!row.fits_with.empty())
      s += wrapped(fmt::format("would fit with {}", fmt::join(row.fits_with, " · ")), "    ");
    return s;
  }
  return fmt::format("{:<{}} {:<11} {:>5} {:<9} {:>6.1f} {:>8} {:>9} {:>9}\n", row.name(), width,
                     short_mesh(row.best->options), row.best->choice.micro_batch_size,
                     name_of(row.best->choice.recompute),
                     static_cast<double>(row.best->bytes) / kGiB, about(row.step->seconds),
                     three_digits(row.speed()),
                     steps ? about(row.step->seconds * static_cast<double>(*steps)) : "");
}

void print_text(const Question& q, const std::vector<Row>& rows) {
  const Planned& p = q.planned;
  const auto parameters = static_cast<double>(make_spec(p.options.model).parameter_count());
  // Without data the basis tells the micro-batch of the recipe, and each row has its own.
  const std::string basis = p.inputs ? p.basis
                                     : fmt::format("for {} of up to {} a step",
                                                   count(q.recipe.global_batch_size, "sample"),
                                                   count(p.options.limits.longest, "token"));
  fmt::print("{}: {} parameters\n{}\n", visible(p.model), format_count(parameters),
             wrapped(basis, "planned "));
  int64_t width = 16;
  for (const Row& row : rows) width = std::max(width, columns_of(row.name()));
  std::string s =
      fmt::format("{:<{}} {:<11} {:>5} {:<9} {:>6} {:>8} {:>9} {:>9}\n", "machines", width, "mesh",
                  "micro", "recompute", "GiB", "step", "tokens/s", p.steps ? "run" : "");
  for (const Row& row : rows) s += row_text(row, width, p.steps);
  std::istringstream lines(s);
  for (std::string line; std::getline(lines, line);) {
    line.resize(line.find_last_not_of(' ') + 1);
    fmt::print("{}\n", line);
  }
  fmt::print(
      "tp, cp, pp: GPUs that divide each layer, each sequence, the blocks; GiB: of the\n"
      "fullest; times by calibrations in the cache, else by data sheet\n");
  if (std::any_of(rows.begin(), rows.end(), [](const Row& row) { return row.unsourced(); }))
    fmt::print("†: by figures that are general knowledge, not looked up in a source\n");
  if (rows.front().best) fmt::print("\non the first:\n{}\n", rows.front().command);
}

Json json_of(const Row& row, const std::optional<int64_t>& steps) {
  Json out = {{"gpu", row.named.gpu.id},
              {"devices", row.named.devices},
              {"machines", row.named.count},
              {"fits", row.best.has_value()},
              {"available_bytes", row.machines.available.device}};
  if (const auto bytes = between_machines(row.machines)) out["between_machines"] = *bytes;
  if (!row.best) {
    out["why"] = row.why;
    out["fits_with"] = row.fits_with;
    return out;
  }
  auto keys = Json::object();
  for (const auto& [key, value] : keys_of(row)) keys[key] = value;
  out["keys"] = keys;
  out["peak_bytes"] = row.best->bytes;
  out["step_seconds"] = row.step->seconds;
  out["tokens_per_second"] = row.speed();
  if (steps) out["run_seconds"] = row.step->seconds * static_cast<double>(*steps);
  out["command"] = row.command;
  return out;
}

}  // namespace

std::vector<NamedMachines> parse_machines(std::string_view text, const GpuCatalogue& catalogue) {
  constexpr int kMost = 1024;
  std::vector<NamedMachines> all;
  std::istringstream words{std::string(text)};
  for (std::string word; std::getline(words, word, ',');) {
    std::string_view rest = word;
    const auto first = take_number(rest), second = take_number(rest);
    const int devices = second.value_or(first.value_or(1));
    NamedMachines named{gpu_named(rest, devices, catalogue), devices, second ? *first : 1};
    const auto placed = named.gpu.placed(named.devices, named.count);
    if (placed.first != named.devices && named.devices <= kMost)
      log::info("{}: machines with {} have {}: taken for {} of {}", visible(word), named.gpu.id,
                count(named.gpu.per_machine, "GPU"), count(placed.second, "machine"), placed.first);
    named.devices = static_cast<int>(placed.first);
    named.count = static_cast<int>(placed.second);
    require(named.devices >= 1 && named.devices <= kMost && named.count >= 1 &&
                named.devices * static_cast<int64_t>(named.count) <= kMostPlannedRanks,
            Fault::usage,
            "plan: --machines: {}: expected up to {} GPUs on each machine, and {} together, such "
            "as 8xa100-40 or 2x8xh100-sxm",
            word, kMost, kMostPlannedRanks);
    all.push_back(named);
  }
  require(!all.empty(), Fault::usage,
          "plan: --machines: expected GPUs such as 8xa100-40,4xrtx4090, found none");
  return all;
}

int plan_machines(Question& q) {
  require(
      q.recipe.accelerator != Accelerator::cpu, Fault::usage,
      "plan: --machines are those with GPUs, but the accelerator is cpu; leave one of them out");
  for (const char* key : {"devices", "num_nodes"})
    if (const auto given = q.given.find(key); given != q.given.end()) {
      require(given->second != kFromCommandLine, Fault::usage,
              "plan: --machines says how many GPUs there are; leave out --gpus and --nodes "
              "(devices, num_nodes)");
      log::info("{} ({}): each machine uses all of its GPUs", key, given->second);
    }
  const PlannedTask task = task_to_rent(q);
  std::vector<Row> rows;
  for (const NamedMachines& named : parse_machines(q.options.machines, gpu_catalogue()))
    rows.push_back(answer_on(q, task, named));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.speed() > b.speed(); });
  const bool fits = rows.front().best.has_value();
  if (q.options.json) {
    Json all = Json::array();
    for (const Row& row : rows) all.push_back(json_of(row, q.planned.steps));
    Json out = {{"format", "capstan-plan-machines-1"},
                {"fits", fits},
                {"model",
                 {{"name", q.planned.model},
                  {"parameters", make_spec(q.planned.options.model).parameter_count()}}},
                {"basis", q.planned.basis}};
    if (q.planned.steps) out["steps"] = *q.planned.steps;
    out["machines"] = all;
    print_json(out);
  } else {
    print_text(q, rows);
  }
  return fits ? 0 : static_cast<int>(Fault::does_not_fit);
}

}  // namespace capstan::cli
