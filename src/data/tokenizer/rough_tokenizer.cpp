#include "data/tokenizer/rough_tokenizer.h"

#include "base/error.h"

namespace capstan {

std::vector<int32_t> RoughTokenizer::encode(std::string_view text) const {
  return std::vector<int32_t>((text.size() + kBytesPerToken - 1) / kBytesPerToken, 0);
}

std::unique_ptr<TextStream> RoughTokenizer::stream() const {
  fail(Fault::bug, "a tokenizer that only counts has no text");
}

std::optional<int32_t> RoughTokenizer::id_of(std::string_view) const {
  return std::nullopt;
}

}  // namespace capstan
