#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "cli/commands.h"
#include "recipe/recipe.h"

namespace capstan::cli {

// Reads `--config FILE` and `--key value` (or `--key=value`) into a recipe: defaults, then the
// file, then the command line. All errors are reported together (Fault::usage); what was given but
// would have no effect is one: keys that the command leaves `unused`, sizes beside a model that has
// its own, constants of another optimizer. A train.min_lr that was not given is at most
// optimizer.lr. Nothing comes back when help was asked for and printed.
std::optional<Recipe> recipe_from(const Arguments& arguments, const char* command,
                                  const char* summary, const Recipe& defaults = {},
                                  std::span<const std::string_view> unused = {});

}  // namespace capstan::cli
