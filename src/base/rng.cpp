#include "base/rng.h"

namespace capstan {

// The key has 224 bits and Philox takes 64 of key and 64 of counter beside our index, so it is
// hashed to 128 by two Philox calls: distinct keys meet by chance only (2^-64 for a pair).
Rng::Rng(const RngKey& key) {
  const auto lo = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto hi = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const auto first =
      philox4x32({lo(key.step), hi(key.step), key.site, 0}, {lo(key.seed), hi(key.seed)});
  const auto second =
      philox4x32({lo(key.sample), hi(key.sample), first[2], first[3]}, {first[0], first[1]});
  key_ = {second[0], second[1]};
  base_ = {second[2], second[3]};
}

uint64_t Rng::below(uint64_t i, uint64_t n) const {
  // Multiply a 64-bit draw by n and keep the top: Lemire's method, whose bias (n / 2^64) would need
  // 2^40 draws to be seen for any n that is used here, so the rejection step is left out.
  const auto d = draws(i);
  const uint64_t wide = (static_cast<uint64_t>(d[0]) << 32) | d[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(wide) * n) >> 64);
}

}  // namespace capstan
