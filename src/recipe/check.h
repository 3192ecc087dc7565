#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recipe/options.h"

namespace capstan {

// The first condition of the option, of those with this consequence, that does not hold: what to
// tell the user of it.
std::optional<std::string> unmet(const Option& option, Condition::Unmet consequence,
                                 const Recipe& recipe, Task task);

// What cannot be trained, whoever made the recipe. Each problem has the key that it is about.
struct Problem {
  std::string key, text;
};
std::vector<Problem> problems_of(const Recipe& recipe, Task task);
// Throws Fault::usage with all of them, one per line.
void check_recipe(const Recipe& recipe, Task task);

}  // namespace capstan
