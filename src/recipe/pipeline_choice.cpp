#include "recipe/pipeline_choice.h"

#include <fmt/format.h>

#include "recipe/scalars.h"

namespace capstan {

std::optional<PipelineChoice> PipelineChoice::parse(std::string_view text) {
  constexpr std::string_view kChunks = "interleaved:";
  if (text == "1f1b") return PipelineChoice{};
  if (text == "zero_bubble") return PipelineChoice{.kind = zero_bubble};
  if (text == "interleaved") return PipelineChoice{.kind = interleaved, .chunks = 2};
  if (!text.starts_with(kChunks)) return std::nullopt;
  const auto chunks = whole_number_of(text.substr(kChunks.size()));
  if (!chunks || *chunks < 2 || *chunks > kMostChunks) return std::nullopt;
  return PipelineChoice{.kind = interleaved, .chunks = *chunks};
}

std::string PipelineChoice::text() const {
  switch (kind) {
    case one_f_one_b: return "1f1b";
    case interleaved: return chunks == 2 ? "interleaved" : fmt::format("interleaved:{}", chunks);
    case zero_bubble: return "zero_bubble";
  }
  return "?";
}

}  // namespace capstan
