#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace capstan {

// Lets maps with string keys be searched by std::string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

// Caches the ids of recent words. Each thread has its own, so there is no locking; it serves the
// tokenizer that the thread used last, and is cleared when full.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer words rarely repeat

  // The calling thread's cache, for the tokenizer with this number (see new_owner).
  static WordCache& of(uint64_t owner);
  // A number that is unique among the tokenizers of the process.
  static uint64_t new_owner();

  // Null if the word is not cached. Valid until the next put.
  const std::vector<int32_t>* find(std::string_view word) const {
    const auto found = words_.find(word);
    return found == words_.end() ? nullptr : &found->second;
  }
  void put(std::string_view word, std::vector<int32_t> ids);

 private:
  static constexpr size_t kMaxWords = 1 << 16;

  uint64_t owner_ = 0;
  TextMap<std::vector<int32_t>> words_;
};

}  // namespace capstan
