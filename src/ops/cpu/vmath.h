#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

// Mathematical functions for the inside of `#pragma omp simd` loops: straight code that the
// compiler vectorises, with the same result in a vector lane as alone.
namespace capstan::cpu {

// exp(x) within 2 ulp for x in [-87.3, 88.3]. Below -87.7 it is 0 and above 88.4 infinite, -inf and
// inf included; exp_f32(0) = 1; NaN stays NaN.
inline float exp_f32(float given) {
  // To [-88, 89]. As integers, because comparisons of floats that let NaN pass cost as much as all
  // the rest. Seen as unsigned, negative floats lie above all others and grow with their size; seen
  // as signed, positive ones do.
  const uint32_t low = std::min(std::bit_cast<uint32_t>(given), std::bit_cast<uint32_t>(-88.0f));
  const int32_t bits = std::min(static_cast<int32_t>(low), std::bit_cast<int32_t>(89.0f));
  const float x = std::bit_cast<float>(bits);

  // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the
  // low bits; ln 2 comes in two parts, the first with so few bits that n times it is exact.
  constexpr float kRound = 0x1.8p23f;
  const float shifted = x * 0x1.715476p0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;

  // e^r: the polynomial of Cephes' expf, in pairs so that few products wait for others.
  const float r2 = r * r;
  const float p2 = 1.6666665459e-1f * r + 5.0000001201e-1f;
  const float p4 = 8.3334519073e-3f * r + 4.1665795894e-2f;
  const float p6 = 1.9875691500e-4f * r + 1.3981999507e-3f;
  const float p = ((p6 * r2 + p4) * r2 + p2) * r2 + (r + 1.0f);

  // 2^n: n + 127 in the place of the exponent. -127 gives 0 and 128 infinity.
  const uint32_t biased = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  const float result = p * std::bit_cast<float>(biased << 23);
  return given != given ? given : result;
}

// 1 / (1 + exp(-x)); exact at both ends.
inline float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

}  // namespace capstan::cpu
