#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace capstan {

// Lets maps with texts for keys be asked by std::string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using TextMap = std::unordered_map<std::string, Value, TextHash, std::equal_to<>>;

// The ids of words seen lately. Each thread has one of its own, so that nobody waits; it serves the
// tokenizer that the thread used last, and begins anew when it is full.
class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer ones are rarely seen again

  // The calling thread's, for the tokenizer with this number (see new_owner).
  static WordCache& of(uint64_t owner);
  // A number that no other tokenizer of the process has.
  static uint64_t new_owner();

  // Null if the word is not there. Valid until the next call of put.
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
