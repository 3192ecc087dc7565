#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace capstan {

// The order in which the stages of a pipeline take turns: "1f1b", "zero_bubble", "interleaved:3"
// with so many chunks of each stage, or "interleaved" with two.
struct PipelineChoice {
  enum Kind : uint8_t { one_f_one_b, interleaved, zero_bubble };
  Kind kind = one_f_one_b;
  int64_t chunks = 1;  // of interleaved: 2 or more

  static constexpr int64_t kMostChunks = 64;
  static constexpr std::string_view kOtherwise = "interleaved:CHUNKS with 2 to 64 chunks";
  static std::optional<PipelineChoice> parse(std::string_view text);
  static std::vector<std::string> choices() { return {"1f1b", "interleaved", "zero_bubble"}; }
  std::string text() const;

  bool operator==(const PipelineChoice&) const = default;
};

}  // namespace capstan
