#pragma once

#include <string>
#include <string_view>

namespace capstan {

// Escapes text for XML and HTML: & < > " ' become entities; invalid UTF-8, and control characters
// that XML forbids, become U+FFFD.
std::string escape_markup(std::string_view text);

}  // namespace capstan
