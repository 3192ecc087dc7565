#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer/unicode.h"

namespace capstan {

// The regular expressions that most byte-level tokenizers share, searched without a regular
// expression: the same words, an order of magnitude sooner. Each word of a text belongs to exactly
// one match, so nothing lies between matches.
enum class KnownPattern {
  gpt2,    // GPT-2: contractions in lower case, numbers of any length
  llama3,  // Llama 3 and cl100k: words take one sign before them, numbers of up to three digits
  qwen2,   // Qwen 2: as llama3, with numbers digit by digit
};

// The expression, as a tokenizer.json has it.
std::string_view expression_of(KnownPattern pattern);
std::optional<KnownPattern> known_pattern(std::string_view expression);

// The matches from left to right, appended to `words`, each `offset` further on. The text is valid
// UTF-8; unicode::classes() is there.
void find_words(KnownPattern pattern, std::string_view text, size_t offset,
                std::vector<unicode::Range>& words);

}  // namespace capstan
