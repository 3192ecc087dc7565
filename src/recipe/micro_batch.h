#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// Samples of a forward and backward pass: how many, or "auto" for what the run finds to be best on
// its device. Until it has, they are one.
struct MicroBatch {
  bool automatic = false;
  int64_t size = 1;

  constexpr MicroBatch(int64_t samples = 1) : size(samples) {}

  static constexpr std::string_view kOtherwise = "a whole number above 0";
  static std::optional<MicroBatch> parse(std::string_view text);
  static std::vector<std::string> choices() { return {"auto"}; }
  std::string text() const { return automatic ? "auto" : std::to_string(size); }

  bool operator==(const MicroBatch&) const = default;
};

}  // namespace capstan
