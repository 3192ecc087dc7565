#pragma once

#include <optional>
#include <string>

#include "cli/commands.h"
#include "plan/offers.h"
#include "recipe/recipe.h"

namespace capstan::cli {

// What `capstan plan` is asked, besides the keys of a recipe.
struct PlanOptions {
  std::string gpu, memory, host_memory, command, calibration, trace, html, allow, machines;
  std::optional<std::string> deadline;
  double network = 0;  // GB/s of each GPU between machines; 0: not given
  std::string network_origin = "--network";
  double budget = 0;  // dollars; 0: not given
  bool json = false, search = false, correct = false, compare = false;

  Wish wish() const;  // reads the clock
};

// Takes the options out; what is left are keys of the recipe, with --gpus and --nodes as the
// recipe calls them. Nothing: help was printed.
std::optional<Arguments> parse_plan_options(PlanOptions& options, const Arguments& arguments);

// Of the words of --compare, those of each setting, with the word that names it.
struct Setting {
  std::string name;
  Arguments words;
};
std::vector<Setting> settings_of(const Arguments& words);

std::optional<Task> command_named(const std::string& word);
// The keys, with positional words as keys: a command (then in `task`), a model's folder or known
// name, or a recipe. Throws Fault::usage for two of a kind.
Arguments with_keys(const Arguments& words, std::optional<Task>& task);

}  // namespace capstan::cli
