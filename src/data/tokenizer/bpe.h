#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/tokenizer/tokenizer_spec.h"
#include "data/tokenizer/word_cache.h"

namespace capstan {

// Byte-pair encoding as in tokenizer.json: a word starts as its characters, and the adjacent pair
// whose merge comes first in the list becomes one token, until no merge applies.
//
// Takes n log n time for a word of length n. Const methods are thread safe.
class Bpe {
 public:
  static constexpr int32_t kLargestId = (1 << 22) - 1;

  // From the file's "model". Throws Fault::file for another type of model, for duplicate ids or ids
  // above kLargestId, and for merges of tokens that are not in the vocabulary.
  explicit Bpe(const Spec& model);

  // Appends the tokens of a text, which must be valid UTF-8. A character that is not in the
  // vocabulary becomes byte tokens, the unknown token, or nothing, as the file says.
  // `encoded`, if given, gets the bytes of the text that are done since its last call, from time to
  // time and at the end; it may throw.
  using Encoded = std::function<void(size_t bytes)>;
  void encode(std::string_view text, std::vector<int32_t>& ids, const Encoded& encoded = {}) const;

  std::optional<int32_t> id_of(std::string_view token) const;
  // Null for an unknown id.
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

  // The last character of the left side and the first of the right side of every merge. No merge
  // joins other pairs of characters, so a text may be cut between them before merging.
  std::bitset<128 * 128> ascii_neighbours_;
  std::unordered_set<uint64_t> neighbours_;
  uint64_t cache_owner_ = WordCache::new_owner();
};

}  // namespace capstan
