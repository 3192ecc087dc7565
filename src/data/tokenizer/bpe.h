#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/word_cache.h"

namespace capstan {

// Byte-pair encoding as tokenizer.json describes it: a word begins as its characters, and the
// neighbours whose merge comes first in the list become one token, until no merge applies.
//
// Time is n log n in the length of a word. Const methods are safe from several threads at once.
class Bpe {
 public:
  static constexpr int32_t kLargestId = (1 << 22) - 1;

  // Of the file's "model". Throws Fault::file for another type of model, for ids that two tokens
  // have or that are above kLargestId, and for merges of tokens that are not in the vocabulary.
  explicit Bpe(const Spec& model);

  // Appends the tokens of a text, which is valid UTF-8. A character that the vocabulary lacks
  // becomes tokens of its bytes, the unknown token, or nothing: as the file says.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  // Null for an id that no token has.
  const std::string* token(int32_t id) const;
  // One more than the largest id.
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  struct Merge {
    uint32_t rank;
    int32_t to;
  };
  struct Symbol;

  void read_vocab(const Spec& model);
  void read_merges(const Spec& model);
  void read_fallbacks(const Spec& model);
  void note_neighbours(std::string_view left, std::string_view right);
  bool can_meet(char32_t left, char32_t right) const;
  void encode_word(std::string_view word, WordCache& cache, std::vector<int32_t>& ids) const;
  std::vector<Symbol> first_symbols(std::string_view word) const;
  std::vector<int32_t> merged(std::string_view word) const;
  const Merge* merge_of(int32_t left, int32_t right) const;
  int32_t id_of_character(std::string_view character) const;

  TextMap<int32_t> vocab_;
  std::vector<const std::string*> tokens_;  // by id, into vocab_
  std::unordered_map<uint64_t, Merge> merges_;
  std::array<int32_t, 128> ascii_ids_{};
  std::array<int32_t, 256> byte_ids_{};  // of "<0x00>" …; -1: none
  std::optional<int32_t> unknown_;
  bool fuse_unknown_ = false, byte_fallback_ = false, ignore_merges_ = false;

  // The last character of the left and the first of the right side of every merge. Between two
  // other characters no merge reaches across, so a text may be cut there before it is merged.
  std::bitset<128 * 128> ascii_neighbours_;
  std::unordered_set<uint64_t> neighbours_;
  uint64_t cache_owner_ = WordCache::new_owner();
};

}  // namespace capstan
