#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// The folders of a set's two parts: "[train, val]" or "train,val".
struct SplitNames {
  std::string train, validation;

  static constexpr std::string_view kOtherwise = "two names, as [train, val]";
  static std::optional<SplitNames> parse(std::string_view text);
  static std::vector<std::string> choices() { return {}; }
  std::string text() const { return "[" + train + ", " + validation + "]"; }

  bool operator==(const SplitNames&) const = default;
};

}  // namespace capstan
