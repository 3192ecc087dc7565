#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "cli/commands.h"
#include "recipe/recipe_input.h"

namespace capstan::cli {

// Reads a recipe from the command line: the command's defaults, then `--config FILE`, then `--key
// value` (or `--key=value`), and for fine-tuning a checkpoint_dir without its key. Reports all
// errors together (Fault::usage). Logs once what it decided for the user. Returns nothing if --help
// or --print_config was requested and printed.
//
// `inputs` says which files must exist: those of a run, of a plan, or none (the demo).
// `given`: filled with the keys that were given and where: "recipe.yaml:14:3", or kFromCommandLine.
enum class Inputs { none, of_run, of_plan };
using GivenKeys = std::map<std::string, std::string, std::less<>>;
inline constexpr std::string_view kFromCommandLine = "command line";
std::optional<Recipe> recipe_from(const Arguments& arguments, Task task, std::string_view summary,
                                  const Recipe& defaults, Inputs inputs = Inputs::none,
                                  GivenKeys* given = nullptr);

// Guesses the task of a recipe file and overrides: finetune_lora if there are LoRA keys,
// finetune_full if there is a checkpoint_dir, else pretrain.
Task task_of(const Arguments& arguments);

}  // namespace capstan::cli
