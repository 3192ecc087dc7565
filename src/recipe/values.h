#pragma once

#include <string>
#include <string_view>

#include "recipe/options.h"

namespace capstan {

// Sets one value from text; "null" empties what can be empty. Throws Fault::usage:
// "key: expected …, found …".
void set_option(Recipe& recipe, const Option& option, std::string_view text);
std::string value_of(const Recipe& recipe, const Option& option);

}  // namespace capstan
