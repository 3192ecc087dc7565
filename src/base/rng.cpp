#include "base/rng.h"

#include <algorithm>

namespace capstan {

uint64_t Rng::below(uint64_t i, uint64_t n) const {
  // Multiply a 64-bit draw by n and keep the top: Lemire's method. Its bias (n / 2^64) would take
  // 2^40 draws to detect for any n used here, so we omit the rejection step.
  const auto d = draws(i);
  const uint64_t wide = (static_cast<uint64_t>(d[0]) << 32) | d[1];
  return static_cast<uint64_t>((static_cast<unsigned __int128>(wide) * n) >> 64);
}

void Rng::eight_draws(uint64_t first, uint32_t* out) const {
  constexpr int kLanes = 8;
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(index);
    c1[i] = static_cast<uint32_t>(index >> 32);
    c2[i] = base_[0];
    c3[i] = base_[1];
  }
  uint32_t k0 = key_[0], k1 = key_[1];
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t a = uint64_t{kPhiloxA} * c0[i], b = uint64_t{kPhiloxB} * c2[i];
      c0[i] = static_cast<uint32_t>(b >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(b);
      c2[i] = static_cast<uint32_t>(a >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(a);
    }
    k0 += kPhiloxKeyA;
    k1 += kPhiloxKeyB;
  }
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t four[] = {c0[i], c1[i], c2[i], c3[i]};
    std::copy(four, four + 4, out + 4 * i);
  }
}

}  // namespace capstan
