#pragma once

#include <optional>
#include <string_view>

#include "cli/commands.h"
#include "recipe/recipe_input.h"

namespace capstan::cli {

// What a command line makes of a recipe: the command's defaults, then `--config FILE`, then
// `--key value` (or `--key=value`), and for fine-tuning a checkpoint_dir without its key. All
// errors are reported together (Fault::usage). What was decided for the user is said once. Nothing
// comes back when --help or --print_config was asked for and printed.
//
// `inputs` says which files must be there: a run's, a plan's, or none (the demonstration's).
enum class Inputs { none, of_run, of_plan };
std::optional<Recipe> recipe_from(const Arguments& arguments, Task task, std::string_view summary,
                                  const Recipe& defaults, Inputs inputs = Inputs::none);

// The task that a recipe file and overrides are for, where nobody says: LoRA's keys are for
// finetune_lora, a checkpoint_dir is fine-tuned, all else is pretraining.
Task task_of(const Arguments& arguments);

}  // namespace capstan::cli
