#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

// Numbers and truth values as Python and YAML write them.
namespace capstan {

// "1_000" and "+1e-4" are numbers too; nothing for text that is none.
std::optional<double> number_of(std::string_view text);
// Whole numbers may be written "3e12" and "5.0".
std::optional<int64_t> whole_number_of(std::string_view text);
// What the user is told to write for one.
inline constexpr std::string_view kWholeNumber = "a whole number";
// "yes", "Off", "True"; nothing for other words.
std::optional<bool> truth_of(std::string_view text);

}  // namespace capstan
