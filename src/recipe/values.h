#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/options.h"

namespace capstan {

// Sets one value from text; "null" empties what can be null. Throws Fault::usage:
// "key: expected …, found …".
void set_option(Recipe& recipe, const Option& option, std::string_view text);
std::string value_of(const Recipe& recipe, const Option& option);

// The words that the value may be, as --help lists them: "block[:N]" may have a number, and "N"
// is one. Empty where the value is no word.
std::vector<std::string> choices_of(const Option& option);
bool can_be_null(const Option& option);
// Whether the value is a word or a path, which YAML may have to quote.
bool is_string(const Option& option);

}  // namespace capstan
