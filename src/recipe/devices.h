#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// Ranks that can train together.
inline constexpr int64_t kMostRanks = 64;
// Ranks that a plan can have.
inline constexpr int64_t kMostPlannedRanks = 4096;

// The devices of each machine that train, a rank on each: how many, which GPUs, or "auto" for all
// GPUs that there are, or one CPU. A GPU that is listed twice is shared by two ranks.
struct Devices {
  bool automatic = false;
  int64_t count = 1;               // unless automatic
  std::vector<int64_t> gpus = {};  // their numbers, if they are listed: `count` of them

  static constexpr std::string_view kOtherwise = "a number, or GPUs as [0, 1]";
  static std::optional<Devices> parse(std::string_view text);
  static std::vector<std::string> choices() { return {"auto"}; }
  std::string text() const;

  bool operator==(const Devices&) const = default;
};

}  // namespace capstan
