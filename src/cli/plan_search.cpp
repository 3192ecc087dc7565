#include "cli/plan_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/shell_words.h"
#include "base/units.h"
#include "base/visible.h"
#include "base/wrapped.h"
#include "cli/command_line.h"

namespace capstan::cli {
namespace {

int ranks_of(const MeshQuestion& q) {
  return q.devices * q.machines;
}

// "interleaved:2" in eight columns.
std::string short_schedule(const MeshChoice& choice) {
  if (choice.pipeline == 1) return "-";
  switch (choice.schedule.kind) {
    case PipelineChoice::one_f_one_b: return "1f1b";
    case PipelineChoice::interleaved: return fmt::format("inter:{}", choice.schedule.chunks);
    case PipelineChoice::zero_bubble: return "zero_bub";
  }
  return "?";
}

// Four digits and a unit: "13.8 s", "937 ms".
std::string short_seconds(double seconds) {
  if (seconds < 1) return fmt::format("{:.0f} ms", 1e3 * seconds);
  return seconds < 100 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.0f} s", seconds);
}

std::string row(const MeshPlan& p, int ranks) {
  const MeshChoice& c = p.choice;
  return fmt::format(
      "{:>4} {:>3} {:>2} {:>2} {:<8} {:<5} {:>5} {:<9} {:>5.1f} {:>6} {:>9.0f} {:>3.0f}% "
      "{:>5.1f}%\n",
      p.data_ranks, fmt::format("{}{}", c.tensor, c.overlap ? "+" : ""), c.context, c.pipeline,
      short_schedule(c),
      c.strategy == Strategy::automatic ? "-" : strategy_name(p.options.sharding),
      c.micro_batch_size, name_of(c.recompute), static_cast<double>(p.bytes) / 0x1p30,
      short_seconds(p.step.seconds), p.tokens_per_second / ranks, 100 * p.step.exposed,
      100 * p.step.waiting);
}

std::string source_of(const Calibration& c) {
  return fmt::format("{} {} of {}", c.from_data_sheet ? "the data sheet of" : "the calibration of",
                     c.name, c.date);
}

std::string command_name(Task task) {
  switch (task) {
    case Task::finetune_full: return "finetune_full";
    case Task::finetune_lora: return "finetune_lora";
    default: return "pretrain";
  }
}

nlohmann::ordered_json json_of(const MeshPlan& p) {
  auto keys = nlohmann::ordered_json::object();
  for (const auto& [key, value] : p.keys()) keys[key] = value;
  return {{"keys", keys},
          {"data_ranks", p.data_ranks},
          {"micro_batches", p.micro_batches},
          {"peak_bytes", p.bytes},
          {"step_seconds", p.step.seconds},
          {"tokens_per_second", p.tokens_per_second},
          {"exposed_communication", p.step.exposed},
          {"stages_wait", p.step.waiting}};
}

}  // namespace

std::string command_of(const MeshPlan& plan, const Arguments& words, Task task) {
  return command_of(words, plan.keys(), task, plan.options);
}

std::string command_of(const VariantPlan& plan, const Arguments& words) {
  return command_of(words, plan.keys(), plan.variant.task, plan.best.options);
}

std::string command_of(const Arguments& words,
                       const std::vector<std::pair<std::string, std::string>>& keys, Task task,
                       const TrainOptions& options) {
  const auto chosen = [&](std::string_view name) {
    return std::any_of(keys.begin(), keys.end(),
                       [&](const auto& key) { return key.first == name; });
  };
  std::vector<std::string> out;
  if (options.network.room) out = {"mpirun", "-n", std::to_string(options.ranks.size)};
  out.insert(out.end(), {"capstan", command_name(task)});
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const bool key = words[i].starts_with("--");
    const bool apart = key && equals == std::string::npos && i + 1 < words.size() &&
                       !words[i + 1].starts_with("--");
    if (key && chosen(std::string_view(words[i]).substr(2, equals - std::min<size_t>(equals, 2)))) {
      if (apart) ++i;
      continue;
    }
    out.push_back(words[i]);
    if (apart) out.push_back(words[++i]);
  }
  for (const auto& [key, value] : keys) out.push_back(fmt::format("--{}={}", key, value));
  return in_shell(out);
}

void print_search_text(const MeshQuestion& q, const MeshSearch& found, const Planned& planned,
                       const std::string& command) {
  const TrainOptions& o = planned.options;
  fmt::print(
      "{}: {} parameters, {}\n{} of {} tokens a step on {}\ntimes by {}\n", visible(planned.model),
      format_count(static_cast<double>(make_spec(o.model).parameter_count())), precision_name(o),
      count(q.recipe.global_batch_size, "sample"), o.limits.longest,
      count(ranks_of(q), o.device == Device::cuda ? "GPU" : "rank"), source_of(q.calibration));
  if (ranks_of(q) > 1)
    fmt::print("each sends {:.3g} GB/s to others{}\n", q.network.bytes_per_second / 1e9,
               q.machines > 1 && q.network.ranks_per_machine > 0
                   ? fmt::format(" of its machine, {:.3g} to other machines",
                                 q.network.across.bytes_per_second / 1e9)
                   : "");
  fmt::print("of {} that are possible, {} had to be simulated\n\n",
             count(found.considered, "choice"), found.planned);
  if (found.best.empty()) {
    fmt::print(
        "{}", wrapped(fmt::format("no mesh fits: each rank has {}, and all need at least {}{}",
                                  format_bytes(q.available.device), format_bytes(found.least_bytes),
                                  q.options.device == Device::cuda
                                      ? "; more GPUs, or a narrower precision or optimizer, "
                                        "need less on each"
                                      : ""),
                      ""));
    return;
  }
  fmt::print("  dp  tp cp pp schedule shard micro recompute   GiB   step tok/s/GPU comm bubble\n");
  for (const MeshPlan& p : found.best) fmt::print("{}", row(p, ranks_of(q)));
  fmt::print(
      "\ndp, tp, cp, pp: ranks that divide data, each layer, each sequence, the blocks\n"
      "{}"
      "GiB: of the fullest rank, which has {}\n"
      "comm, bubble: part of a step that waits for communication and for other stages\n\n{}\n",
      std::any_of(found.best.begin(), found.best.end(),
                  [](const MeshPlan& p) { return p.choice.overlap; })
          ? "+: what those of a layer exchange overlaps with products\n"
          : "",
      format_bytes(q.available.device), command);
}

void print_search_json(const MeshQuestion& q, const MeshSearch& found, const Planned& planned,
                       const std::string& command, const Arguments& words,
                       const std::vector<VariantPlan>& others) {
  auto best = nlohmann::ordered_json::array();
  for (const MeshPlan& p : found.best) best.push_back(json_of(p));
  nlohmann::ordered_json out = {
      {"format", "capstan-plan-search-1"},
      {"fits", !found.best.empty()},
      {"model",
       {{"name", planned.model},
        {"parameters", make_spec(planned.options.model).parameter_count()}}},
      {"ranks", ranks_of(q)},
      {"available_bytes", q.available.device},
      {"considered", found.considered},
      {"simulated", found.planned},
      {"best", best},
      {"calibration",
       {{"name", q.calibration.name},
        {"date", q.calibration.date},
        {"data_sheet", q.calibration.from_data_sheet}}}};
  for (const VariantPlan& p : others) {
    nlohmann::ordered_json row = {
        {"what", p.variant.what}, {"gpus", p.gpus()}, {"gpu_seconds", p.gpu_seconds()}};
    row.update(json_of(p.best));
    for (const auto& [key, value] : p.keys()) row["keys"][key] = value;
    row["command"] = command_of(p, words);
    out["allowed"].push_back(row);
  }
  if (found.best.empty())
    out["least_bytes"] = found.least_bytes;
  else
    out["command"] = command;
  print_json(out);
}

}  // namespace capstan::cli
