#include "recipe/split_names.h"

#include "base/text.h"
#include "recipe/scalars.h"

namespace capstan {

std::optional<SplitNames> SplitNames::parse(std::string_view text) {
  const size_t comma = text.find(',');
  if (comma == std::string_view::npos || text.find(',', comma + 1) != std::string_view::npos)
    return std::nullopt;
  constexpr std::string_view kAround = " []()\"'";
  const SplitNames names{std::string(trimmed(text.substr(0, comma), kAround)),
                         std::string(trimmed(text.substr(comma + 1), kAround))};
  if (names.train.empty() || names.validation.empty()) return std::nullopt;
  return names;
}

}  // namespace capstan
