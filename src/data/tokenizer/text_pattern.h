#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/unicode.h"

namespace capstan {

// What a tokenizer.json calls a pattern: {"String": "…"} is a text, {"Regex": "…"} an expression.
class TextPattern {
 public:
  explicit TextPattern(const Spec& spec);

  // From left to right; none overlaps another.
  std::vector<unicode::Range> matches(std::string_view text) const;
  // The text with every match replaced.
  std::string replaced(std::string_view text, std::string_view by) const;
  // How long a match is, where that is known: the length of the text.
  std::optional<size_t> length() const;

 private:
  std::string literal_;
  std::optional<unicode::Pattern> expression_;
};

}  // namespace capstan
