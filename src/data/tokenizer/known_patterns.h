#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer/unicode.h"

namespace capstan {

// Hand-written matchers for the regular expressions of most byte-level tokenizers: the same words,
// an order of magnitude faster. The matches cover the whole text.
enum class KnownPattern {
  gpt2,    // GPT-2: lower-case contractions, numbers of any length
  llama3,  // Llama 3 and cl100k: a word may include one leading symbol; numbers of up to three
           // digits
  qwen2,   // Qwen 2: like llama3, but each digit is a word
};

// The expression as in tokenizer.json.
std::string_view expression_of(KnownPattern pattern);
std::optional<KnownPattern> known_pattern(std::string_view expression);

// Appends the matches from left to right to `words`, each shifted by `offset`. The text must be
// valid UTF-8; call only if unicode::classes() is available.
void find_words(KnownPattern pattern, std::string_view text, size_t offset,
                std::vector<unicode::Range>& words);

}  // namespace capstan
