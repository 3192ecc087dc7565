#pragma once

#include "data/data_source.h"
#include "recipe/recipe.h"

namespace capstan {

struct RunInputs;

// find_inputs() (train/inputs.h) while somebody watches: `progress` may throw to end it.
RunInputs find_inputs(const Recipe& recipe, Task task, const DataProgress& progress);

}  // namespace capstan
