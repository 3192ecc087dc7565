#pragma once

#include <string>
#include <string_view>

namespace capstan {

// A text of unknown origin as a terminal may show it. Newlines and tabs stay as they are; other
// control characters (U+0000 to U+001F, U+007F to U+009F) and bytes that are not UTF-8 become
// escapes such as \x1b, so that no text can move the cursor, change the title or answer for the
// user. For what people read: messages, samples, answers on a terminal. Not for data.
std::string visible(std::string_view text);

}  // namespace capstan
