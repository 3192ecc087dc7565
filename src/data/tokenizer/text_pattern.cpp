#include "data/tokenizer/text_pattern.h"

#include "base/json_text.h"

namespace capstan {

TextPattern::TextPattern(const Spec& spec) {
  if (spec.has("String")) {
    literal_ = spec.text("String");
  } else if (spec.has("Regex")) {
    unicode::require_available("a regular expression", spec.location());
    expression_.emplace(spec.text("Regex"), spec.location());
  } else {
    spec.refuse("expected {{\"String\": …}} or {{\"Regex\": …}}, found {}", shown(spec.value()));
  }
}

std::vector<unicode::Range> TextPattern::matches(std::string_view text) const {
  if (expression_) return expression_->matches(text);
  std::vector<unicode::Range> found;
  if (literal_.empty()) return found;
  for (size_t i = text.find(literal_); i != text.npos; i = text.find(literal_, i + literal_.size()))
    found.push_back({i, i + literal_.size()});
  return found;
}

std::string TextPattern::replaced(std::string_view text, std::string_view by) const {
  std::string result;
  size_t done = 0;
  for (const unicode::Range& m : matches(text)) {
    result.append(text.substr(done, m.begin - done)).append(by);
    done = m.end;
  }
  return result.append(text.substr(done));
}

std::optional<size_t> TextPattern::length() const {
  if (expression_) return std::nullopt;
  return literal_.size();
}

}  // namespace capstan
