#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace capstan {

// Columns that UTF-8 text takes, if every character takes one.
int64_t columns_of(std::string_view text);

// `begin` and then the text, broken between words into lines of at most `width` columns; further
// lines are indented to where the text begins. Ends with a newline. A longer word has its own line.
std::string wrapped(std::string_view text, std::string_view begin, int64_t width = 80);

}  // namespace capstan
