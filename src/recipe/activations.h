#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/choices.h"

namespace capstan {

// What the backward pass recomputes: "none", "selective", "block", "block:8" for the first eight
// blocks (model/recompute.h says what the others do), or "auto" for the least that fits in memory.
struct Activations {
  Recompute policy = Recompute::none;
  std::optional<int64_t> blocks = {};  // absent: all
  bool automatic = false;              // then the others say nothing

  static std::optional<Activations> parse(std::string_view text);
  static std::vector<std::string> choices();  // "selective[:N]" may have a count
  std::string text() const;

  bool operator==(const Activations&) const = default;
};

}  // namespace capstan
