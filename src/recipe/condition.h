#pragma once

#include <cstdint>
#include <string_view>

#include "recipe/recipe.h"

namespace capstan {

// What an option needs of the rest of the recipe.
struct Condition {
  enum class Unmet : uint8_t {
    refused,           // an error, whether or not the user gave the key
    refused_if_given,  // the key would have no effect: an error where the user gave it
    noted,             // the same, but often set once for all runs: the user is told
    allowed,           // for a condition that only says which class has the argument
  };
  bool (*holds)(const Recipe&, Task);
  Unmet unmet;
  // What the user is told after the key; "{optimizer}" is the value of that key.
  std::string_view otherwise = {};
  // `holds` says whether the class that `optimizer` or `data` names has this argument. A class that
  // a later source names drops the arguments that it does not have.
  bool of_class = false;
};

}  // namespace capstan
