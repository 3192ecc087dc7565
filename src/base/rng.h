#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace capstan {

// The purpose of a random number. Equal keys give equal numbers on every device, thread count and
// mesh, so that recomputation, resuming and re-sharding see the same draws. No state is shared.
struct RngKey {
  uint64_t seed = 0;    // the recipe's seed
  uint64_t step = 0;    // optimizer step (or epoch, for the sampler)
  uint64_t sample = 0;  // sample id, if the draw belongs to one
  uint32_t site = 0;    // where in the program; see the constants below
};

// Sites. Two places that draw must have different sites, or they draw the same numbers.
namespace site {
inline constexpr uint32_t init = 1 << 20;     // + parameter index
inline constexpr uint32_t dropout = 2 << 20;  // + number of the adapter
inline constexpr uint32_t shuffle = 3 << 20;
inline constexpr uint32_t sampling = 4 << 20;  // decoding
inline constexpr uint32_t tasks = 5 << 20;     // the demo's examples
inline constexpr uint32_t rounding = 6 << 20;  // for weights; + parameter index
}  // namespace site

inline constexpr uint32_t kPhiloxA = 0xD2511F53, kPhiloxB = 0xCD9E8D57;
inline constexpr uint32_t kPhiloxKeyA = 0x9E3779B9, kPhiloxKeyB = 0xBB67AE85;

// Philox4x32-10 (Salmon et al., 2011): four 32-bit words that depend only on key and counter.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{kPhiloxA} * c[0];
    const uint64_t b = uint64_t{kPhiloxB} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += kPhiloxKeyA;
    k[1] += kPhiloxKeyB;
  }
  return c;
}

// A stream of random numbers for one key. Random access: draws(i) needs no earlier draw. Copies are
// free; concurrent use is safe.
class Rng {
 public:
  // The key has 224 bits, but Philox takes a 64-bit key and 64 bits of counter besides our index.
  // So two Philox calls hash it to 128 bits: distinct keys collide only by chance (2^-64 for a
  // pair).
  constexpr explicit Rng(const RngKey& key) {
    const auto lo = [](uint64_t x) { return static_cast<uint32_t>(x); };
    const auto hi = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    const auto first =
        philox4x32({lo(key.step), hi(key.step), key.site, 0}, {lo(key.seed), hi(key.seed)});
    const auto second =
        philox4x32({lo(key.sample), hi(key.sample), first[2], first[3]}, {first[0], first[1]});
    key_ = {second[0], second[1]};
    base_ = {second[2], second[3]};
  }

  // Words 4i … 4i+3 of the stream.
  constexpr std::array<uint32_t, 4> draws(uint64_t i) const {
    return philox4x32(
        {static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), base_[0], base_[1]}, key_);
  }
  uint32_t word(uint64_t i) const { return draws(i / 4)[i % 4]; }
  // N consecutive words from word 4 * first on, N a multiple of 32: same as word(), but many times
  // faster.
  template <size_t N>
  void words(uint64_t first, uint32_t (&out)[N]) const {
    static_assert(N % 32 == 0);
    for (size_t i = 0; i < N; i += 32) eight_draws(first + i / 4, out + i);
  }
  // Uniform in [0, 1), 24 bits.
  float uniform(uint64_t i) const { return static_cast<float>(word(i) >> 8) * 0x1p-24f; }
  // 16 bits: the lower half of word(i / 2) for even i, else the upper one.
  uint32_t half(uint64_t i) const { return word(i / 2) >> (i % 2 * 16) & 0xffff; }
  // Uniform in [0, n), from draws(i); the bias is below n / 2^64. n > 0.
  uint64_t below(uint64_t i, uint64_t n) const;

 private:
  void eight_draws(uint64_t first, uint32_t* out) const;  // interleaved in vector lanes

  std::array<uint32_t, 2> key_{};
  std::array<uint32_t, 2> base_{};
};

}  // namespace capstan
