#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// A pattern of a tokenizer.json: {"String": "…"} is literal text, {"Regex": "…"} a regular
// expression.
class TextPattern {
 public:
  explicit TextPattern(const Spec& spec);

  // From left to right, without overlaps.
  std::vector<unicode::Range> matches(std::string_view text) const;
  // The text with every match replaced.
  std::string replaced(std::string_view text, std::string_view by) const;
  // The length of a match if it is fixed: the length of the literal text.
  std::optional<size_t> length() const;

 private:
  std::string literal_;
  std::optional<unicode::Pattern> expression_;
};

}  // namespace capstan
