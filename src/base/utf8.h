#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace capstan {

// The position of the first byte that is not part of a well-formed UTF-8 character (Unicode 15,
// table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF), or nothing if the text is
// valid.
std::optional<size_t> invalid_utf8(std::string_view text);

}  // namespace capstan
