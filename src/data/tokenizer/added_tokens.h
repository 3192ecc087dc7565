#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/word_cache.h"

namespace capstan {

// A part of a text: an added token, or the text between two of them.
struct TextSegment {
  std::string_view text;
  int32_t token = -1;  // -1: ordinary text
};

// Tokens that are matched by name before all other steps ("added_tokens").
class AddedTokens {
 public:
  // From the file's list. Throws Fault::file if a token has another id in the vocabulary, or the id
  // of another token. `normalizer` may be null.
  AddedTokens(const Spec& list, const Bpe& model, const Normalizer* normalizer);

  // Splits at the tokens that are matched in the original text.
  std::vector<TextSegment> split_written(std::string_view text) const {
    return written_.split(text, tokens_);
  }
  // The same for the tokens that are matched in the normalized text.
  std::vector<TextSegment> split_normalized(std::string_view text) const {
    return normalized_.split(text, tokens_);
  }

  std::optional<int32_t> id_of(std::string_view token) const;
  // Null for an id that is not an added token.
  const std::string* token(int32_t id) const;
  // Whether decoding skips the token.
  bool is_special(int32_t id) const;
  // One more than the largest id; 0 without tokens.
  int32_t size() const { return static_cast<int32_t>(by_id_.size()); }

 private:
  struct Token {
    std::string content;
    int32_t id;
    bool single_word, strips_left, strips_right, special;
  };
  // Finds names in a text; the longest match wins.
  struct Finder {
    TextMap<size_t> tokens;       // index into tokens_
    std::vector<size_t> lengths;  // lengths of the names, descending
    std::array<bool, 256> begins{};

    void add(std::string_view name, size_t token);
    // Index of the token at the front of the text.
    std::optional<std::pair<size_t, size_t>> at(std::string_view text) const;
    std::vector<TextSegment> split(std::string_view text, const std::vector<Token>& tokens) const;
  };

  std::vector<Token> tokens_;
  std::vector<int32_t> by_id_;  // index into tokens_; -1: none
  TextMap<int32_t> ids_;
  Finder written_, normalized_;
};

}  // namespace capstan
