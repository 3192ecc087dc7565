#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/scalars.h"

namespace capstan {

// Ranks that can train together.
inline constexpr int64_t kMostRanks = 64;

// How many devices to train on: a number, or "auto" for those that there are.
struct DeviceCount {
  bool automatic = false;
  int64_t count = 1;  // unless automatic

  static constexpr std::string_view kOtherwise = kWholeNumber;
  static std::optional<DeviceCount> parse(std::string_view text);
  static std::vector<std::string> choices() { return {"auto"}; }
  std::string text() const { return automatic ? "auto" : std::to_string(count); }

  bool operator==(const DeviceCount&) const = default;
};

}  // namespace capstan
