#pragma once

#include <optional>

#include "cli/commands.h"
#include "recipe/recipe.h"

namespace capstan::cli {

// Reads `--config FILE` and `--key value` (or `--key=value`) into a recipe: defaults, then the
// file, then the command line. All errors are reported together (Fault::usage). Nothing comes back
// when help was asked for and printed.
std::optional<Recipe> recipe_from(const Arguments& arguments, const char* command,
                                  const char* summary, const Recipe& defaults = {});

}  // namespace capstan::cli
