#pragma once

#include <string>
#include <vector>

#include "recipe/options.h"

namespace capstan {

// The recipe's keys in nested form, as LitGPT writes them. Only what the command uses.
struct YamlLine {
  std::string text;                // with its indentation
  const Option* option = nullptr;  // null for a section's name
};
std::vector<YamlLine> yaml_lines(const Recipe& recipe, Task task);

// The recipe as nested YAML that RecipeInput reads back, without the mesh: the record of a run.
std::string recipe_yaml(const Recipe& recipe, Task task);

}  // namespace capstan
