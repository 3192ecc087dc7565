#pragma once

#include <string>
#include <string_view>

namespace capstan {

inline constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";

// Without the characters of `around` at both ends.
std::string_view trimmed(std::string_view text, std::string_view around = kWhiteSpace);
// With every `from` in it replaced, from left to right.
std::string replaced(std::string text, std::string_view from, std::string_view to);
// The value of an environment variable; empty if it is not set.
std::string environment_value(const char* name);

}  // namespace capstan
