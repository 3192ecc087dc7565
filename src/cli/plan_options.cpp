#include "cli/plan_options.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "cli/command_line.h"
#include "cli/deadline.h"
#include "model/known_models.h"
#include "recipe/nearest.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::pair<const char*, Task> kPlannedCommands[] = {
    {"pretrain", Task::pretrain},
    {"finetune_full", Task::finetune_full},
    {"finetune", Task::finetune_lora},
    {"finetune_lora", Task::finetune_lora}};

std::string suggestion_for(std::string_view word) {
  std::vector<std::string_view> names = known_model_names();
  for (const char* command :
       {"pretrain", "finetune", "finetune_full", "finetune_lora", "site", "where"})
    names.emplace_back(command);
  return did_you_mean(word, names);
}

// Of the words that say what is planned, those that were met so far: a plan is of one of each.
class Subjects {
 public:
  void take_command(const std::string& word) {
    require(command_.empty(), Fault::usage,
            "plan: {} and {} are two commands, and a plan is of one; plan each by itself", command_,
            word);
    command_ = word;
  }
  void take_model(const std::string& word) {
    require(
        model_.empty(), Fault::usage,
        "plan: {0} and {1} are two models, and a plan is of one; plan each by itself, or side by "
        "side: --compare {0} {1}",
        model_, word);
    model_ = word;
  }
  void take_recipe(const std::string& word) {
    require(recipe_.empty(), Fault::usage,
            "plan: {0} and {1} are two recipes, and a plan is of one; side by side: --compare {0} "
            "{1}; if the second changes keys of the first: --config {0} --config {1}",
            recipe_, word);
    recipe_ = word;
  }

 private:
  std::string command_, model_, recipe_;
};

// A deadline and a budget choose one of many machines, unless one is given.
void require_sense_of_wish(const PlanOptions& o) {
  if (!o.deadline && o.budget == 0) return;
  const char* wish = o.deadline ? "--deadline" : "--budget";
  require(!o.search, Fault::usage,
          "plan: {} chooses a machine, and --search needs to be told one; plan with {} first, then "
          "search for the machine that it prints",
          wish, wish);
  for (const auto& [name, value] : {std::pair("--memory", &o.memory),
                                    {"--host-memory", &o.host_memory},
                                    {"--calibration", &o.calibration}})
    require(value->empty() || !o.gpu.empty(), Fault::usage,
            "plan: {} chooses among machines with different GPUs, and {} is of one; leave it out, "
            "or name the GPU (--gpu)",
            wish, name);
}

// Several machines and several settings are questions of their own.
void require_one_question(const PlanOptions& o) {
  if (o.machines.empty() && !o.compare) return;
  const char* const asked = o.compare ? "--compare" : "--machines";
  const auto excludes = [&](bool given, const char* other) {
    require(!given, Fault::usage,
            "plan: {} asks about several {}, and {} is of one plan; leave one of them out", asked,
            o.compare ? "settings" : "machines", other);
  };
  excludes(o.compare && !o.machines.empty(), "--machines");
  excludes(o.search, "--search");
  excludes(o.deadline.has_value(), "--deadline");
  excludes(o.budget > 0, "--budget");
  excludes(!o.html.empty(), "--html");
  excludes(!o.trace.empty(), "--trace");
  if (o.compare) return;
  excludes(!o.gpu.empty(), "--gpu");
  excludes(!o.memory.empty(), "--memory");
  excludes(!o.host_memory.empty(), "--host-memory");
  excludes(!o.calibration.empty(), "--calibration");
  excludes(o.correct, "--correct");
}

// Names that people expect, as the recipe has them.
std::string key_of(const std::string& word) {
  for (const auto& [name, key] : {std::pair("--gpus", "--devices"), {"--nodes", "--num_nodes"}}) {
    const std::string_view given = name;
    if (word == given || (word.starts_with(given) && word[given.size()] == '='))
      return key + word.substr(given.size());
  }
  return word;
}

}  // namespace

Wish PlanOptions::wish() const {
  Wish wish;
  if (deadline) wish.seconds = seconds_until(*deadline, std::chrono::system_clock::now());
  if (budget > 0) wish.dollars = budget;
  return wish;
}

std::optional<Arguments> parse_plan_options(PlanOptions& o, const Arguments& arguments) {
  CommandLine line(
      "Checks what a run needs before it starts, by running the recipe on a simulated device. Exit "
      "code 0: it fits; 3: it does not. RECIPE may also be a model's folder or the name of a known "
      "model (Llama-3.2-1B). Any key of the recipe can follow. 'capstan plan where' says where "
      "GPUs should come from, 'capstan plan site' plans power, network and racks.",
      "capstan plan [pretrain|finetune_full|finetune] [RECIPE.yaml]");
  line.option(
      "--gpu", o.gpu,
      "plan for a GPU that is not here: v100-32, rtx4090, h100-sxm …; --gpus N (devices) of "
      "each of --nodes M machines (num_nodes). Times are by a calibration of such a GPU, if "
      "the cache has one, else by its data sheet");
  line.option("--memory", o.memory,
              "total memory of the device, such as 80GiB (default: the --gpu's, or what is free "
              "here)");
  line.option("--host-memory", o.host_memory,
              "memory of the GPU's host, such as 128GiB (default: what is free here, or, with "
              "--memory, unlimited)");
  line.option("--calibration", o.calibration,
              "calibration that 'capstan bench' wrote, here or on the target machine: a file, or "
              "the name of one in the cache (default: the --gpu's or this machine's, if the cache "
              "has it)");
  line.flag("--correct", o.correct,
            "multiply predicted times by what earlier runs took on this device");
  line.option(
      "--network", o.network,
      "with --gpu: GB/s of each GPU between machines, each way (default: what machines with "
      "such GPUs usually have, 12.5, 25 or 50)",
      {1e-3, 1e6, false});
  line.choice(
      "--command", o.command, {"pretrain", "finetune_full", "finetune", "finetune_lora"},
      "command that the recipe is for (default: guessed from LoRA keys and checkpoint_dir)");
  line.option("--deadline", o.deadline,
              "when the run must be done: 36h, 3 days, friday (at 17:00), 2026-12-24; shows which "
              "rented machines meet it, and without --gpu plans for the cheapest of them, or if "
              "none does for the nearest");
  line.option("--budget", o.budget, "dollars that the run may cost; likewise", {0.01, 1e12, false});
  line.flag(
      "--search", o.search,
      "find how the GPUs (devices × num_nodes) best share the work of the recipe's global batch: "
      "tensor, pipeline and context parallelism, strategy, micro-batch and recomputation");
  line.option(
      "--allow", o.allow,
      "what else --search may change, joined by commas: precision, lora, qlora, fewer (GPUs)");
  line.option("--machines", o.machines,
              "which of these machines trains it best, and how: 8xa100-40,4xrtx4090,1xt4 are three "
              "of 8, 4 and 1 GPUs, 2x8xh100-sxm two of 8 that work together");
  line.flag("--compare", o.compare,
            "time and memory of several recipes (or models) side by side: --compare a.yaml b.yaml; "
            "keys and --gpu hold for all of them");
  line.option("--trace", o.trace,
              "file for a timeline of one simulated step, which ui.perfetto.dev and "
              "chrome://tracing open");
  line.option("--html", o.html, "file for the plan as a page with drawings, for any browser");
  line.flag("--json", o.json, "print JSON");
  CommandLine::Known known = line.parse_known(arguments);
  if (known.help) return std::nullopt;
  require(known.error.empty(), Fault::usage, "{}; 'capstan plan --help' lists the options",
          known.error);
  require(
      o.network == 0 || !o.gpu.empty(), Fault::usage,
      "plan: --network says what connects machines with GPUs of the catalogue; also give --gpu");
  require((o.trace.empty() && o.html.empty()) || !o.search, Fault::usage,
          "plan: {} is of one plan, and --search makes many; give it with the command that the "
          "search prints",
          o.trace.empty() ? "--html" : "--trace");
  require(o.allow.empty() || o.search, Fault::usage,
          "plan: --allow says what --search may change; also give --search");
  require(!o.correct || !o.search, Fault::usage,
          "plan: --correct is by the runs of one layout, and --search compares many; give it with "
          "the command that the search prints");
  require_sense_of_wish(o);
  require_one_question(o);
  for (std::string& word : known.rest) word = key_of(word);
  return std::move(known.rest);
}

std::optional<Task> command_named(const std::string& word) {
  for (const auto& [name, task] : kPlannedCommands)
    if (word == name) return task;
  return std::nullopt;
}

std::vector<Setting> settings_of(const Arguments& words) {
  Arguments common;
  std::vector<std::string> models, recipes;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    std::error_code error;
    if (word.starts_with("--")) {
      common.push_back(word);
      if (word.find('=') == std::string::npos && i + 1 < words.size() &&
          !words[i + 1].starts_with("--"))
        common.push_back(words[++i]);
    } else if (command_named(word)) {
      common.push_back(word);
    } else {
      (fs::is_regular_file(word, error) ? recipes : models).push_back(word);
    }
  }
  // One model holds for all recipes, and one recipe for all models.
  const bool of_models = models.size() > 1;
  require((of_models ? models : recipes).size() > 1, Fault::usage,
          "plan: --compare needs two or more recipes or models: --compare a.yaml b.yaml");
  require(!of_models || recipes.size() <= 1, Fault::usage,
          "plan: --compare takes several recipes or several models, not both");
  const std::vector<std::string>& shared = of_models ? recipes : models;
  common.insert(common.begin(), shared.begin(), shared.end());
  std::vector<Setting> all;
  for (const std::string& name : of_models ? models : recipes) {
    all.push_back({name, common});
    all.back().words.insert(all.back().words.begin(), name);
  }
  return all;
}

Arguments with_keys(const Arguments& words, std::optional<Task>& task) {
  Arguments out;
  Subjects subjects;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    std::error_code error;
    if (word.starts_with("--")) {
      out.push_back(word);
      const size_t equals = word.find('=');
      if (equals == std::string::npos && i + 1 < words.size() && !words[i + 1].starts_with("--"))
        out.push_back(words[++i]);
      if (word.substr(0, equals) == "--checkpoint_dir")
        subjects.take_model(equals == std::string::npos ? out.back() : word.substr(equals + 1));
    } else if (const auto named = command_named(word)) {
      subjects.take_command(word);
      task = named;
    } else {
      const bool there = fs::exists(word, error);
      const bool model = fs::is_directory(word, error) || (!there && known_model(word));
      require(there || model, Fault::file,
              "{}: cannot open: there is no such recipe or folder, and no known model of that "
              "name{}. Known models are {}",
              word, suggestion_for(word), known_families());
      model ? subjects.take_model(word) : subjects.take_recipe(word);
      out.push_back(model ? "--checkpoint_dir" : "--config");
      out.push_back(word);
    }
  }
  // Pretraining begins with random weights: a known model gives its sizes alone.
  if (task == Task::pretrain)
    for (size_t i = 0; i + 1 < out.size(); ++i)
      if (out[i] == "--checkpoint_dir" && known_model(out[i + 1])) out[i] = "--model_name";
  return out;
}

}  // namespace capstan::cli
