#include "data/tokenizer/word_cache.h"

#include <atomic>
#include <utility>

namespace capstan {

WordCache& WordCache::of(uint64_t owner) {
  thread_local WordCache cache;
  if (cache.owner_ != owner) {
    cache.words_.clear();
    cache.owner_ = owner;
  }
  return cache;
}

uint64_t WordCache::new_owner() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void WordCache::put(std::string_view word, std::vector<int32_t> ids) {
  if (words_.size() >= kMaxWords) words_.clear();
  words_.emplace(word, std::move(ids));
}

}  // namespace capstan
