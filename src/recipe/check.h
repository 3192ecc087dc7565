#pragma once

#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace capstan {

// What no single key shows. Each problem has the key that it is about.
struct Problem {
  std::string key, text;
};
std::vector<Problem> problems_of(const Recipe& recipe);
// Throws Fault::usage with all of them, one per line.
void check_recipe(const Recipe& recipe);

}  // namespace capstan
