#pragma once

#include <string>
#include <string_view>

namespace capstan {

// Makes an untrusted text safe for a terminal. Newlines and tabs stay; other control characters
// (U+0000 to U+001F, U+007F to U+009F) and invalid UTF-8 become escapes such as \x1b, so that no
// text can move the cursor, change the title or answer for the user. For messages, samples and
// answers on a terminal. Not for data.
std::string visible(std::string_view text);

}  // namespace capstan
