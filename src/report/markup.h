#pragma once

#include <string>
#include <string_view>

namespace capstan {

// Text for XML and HTML: & < > " ' as entities; bytes that are not UTF-8, and control characters
// that XML has not, as U+FFFD.
std::string escape_markup(std::string_view text);

}  // namespace capstan
