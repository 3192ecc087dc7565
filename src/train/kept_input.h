#pragma once

#include "recipe/recipe.h"

namespace capstan {

// Records that come from standard input (data.json_path "-") are kept as a file in out_dir, so that
// the run can be resumed: returns the recipe that reads this file. `receives`: writes it; if
// nothing comes, it stays as an earlier part of the run wrote it. Other recipes are returned as
// they are.
Recipe with_kept_input(const Recipe& recipe, bool receives);

}  // namespace capstan
