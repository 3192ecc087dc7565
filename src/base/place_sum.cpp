#include "base/place_sum.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "base/parallel.h"

namespace capstan {
namespace {

// splitmix64.
constexpr uint64_t mixed(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The sum of words, each times an odd factor of its place: that of its block times that within it.
constexpr int64_t kWord = sizeof(uint64_t), kWords = 2048, kBlock = kWords * kWord;
constexpr auto kFactors = [] {
  std::array<uint64_t, kWords> factors{};
  for (size_t i = 0; i < factors.size(); ++i) factors[i] = mixed(i) | 1;
  return factors;
}();

uint64_t factor_of_block(int64_t block) {
  return mixed(static_cast<uint64_t>(block) + (uint64_t{1} << 32)) | 1;
}

// Of some bytes of one word; the others are zero, so that parts of a word add up to it.
uint64_t word_of(const std::byte* bytes, int64_t n, int64_t at_in_word) {
  uint64_t word = 0;
  std::memcpy(reinterpret_cast<std::byte*>(&word) + at_in_word, bytes, static_cast<size_t>(n));
  return word;
}

// Of bytes of one block, from its byte `at` on.
uint64_t sum_in_block(const std::byte* bytes, int64_t n, int64_t at) {
  uint64_t sum = 0;
  const uint64_t* factor = kFactors.data() + at / kWord;
  if (const int64_t in_word = at % kWord; in_word != 0) {
    const int64_t some = std::min(n, kWord - in_word);
    sum += word_of(bytes, some, in_word) * *factor++;
    bytes += some, n -= some;
  }
  const int64_t words = n / kWord;
  for (int64_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, bytes + i * kWord, kWord);
    sum += word * factor[i];
  }
  if (const int64_t rest = n % kWord; rest > 0)
    sum += word_of(bytes + words * kWord, rest, 0) * factor[words];
  return sum;
}

}  // namespace

uint64_t place_sum(std::span<const std::byte> bytes, int64_t at) {
  constexpr int64_t kGrain = 1 << 20;
  std::atomic<uint64_t> total = 0;
  parallel_for(std::ssize(bytes), kGrain, [&](int64_t begin, int64_t end) {
    uint64_t sum = 0;
    for (int64_t next = 0; begin < end; begin = next) {
      const int64_t place = at + begin;
      next = std::min(end, begin + kBlock - place % kBlock);
      sum += factor_of_block(place / kBlock) *
             sum_in_block(bytes.data() + begin, next - begin, place % kBlock);
    }
    total += sum;
  });
  return total;
}

}  // namespace capstan
