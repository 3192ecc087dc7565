#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

// Mathematical functions for `#pragma omp simd` loops: branch-free code that the compiler
// vectorises, with the same result in a vector lane as in scalar code.
namespace capstan::cpu {

// exp(x) within 2 ulp for x in [-87.3, 88.3]. Below -87.7 it is 0 and above 88.4 infinite,
// including -inf and inf; exp_f32(0) = 1; NaN stays NaN.
inline float exp_f32(float given) {
  // Clamps to [-88, 89]. With integers, because float comparisons that pass NaN through cost as
  // much as all the rest. As unsigned, negative floats are above all others and grow with their
  // magnitude; as signed, positive ones do.
  const uint32_t low = std::min(std::bit_cast<uint32_t>(given), std::bit_cast<uint32_t>(-88.0f));
  const int32_t bits = std::min(static_cast<int32_t>(low), std::bit_cast<int32_t>(89.0f));
  const float x = std::bit_cast<float>(bits);

  // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the
  // low bits; ln 2 is split in two, the first with so few bits that n times it is exact.
  constexpr float kRound = 0x1.8p23f;
  const float shifted = x * 0x1.715476p0f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;

  // e^r: the polynomial of Cephes' expf, evaluated in pairs for shorter dependency chains.
  const float r2 = r * r;
  const float p2 = 1.6666665459e-1f * r + 5.0000001201e-1f;
  const float p4 = 8.3334519073e-3f * r + 4.1665795894e-2f;
  const float p6 = 1.9875691500e-4f * r + 1.3981999507e-3f;
  const float p = ((p6 * r2 + p4) * r2 + p2) * r2 + (r + 1.0f);

  // 2^n: n + 127 in the exponent field. -127 gives 0 and 128 infinity.
  const uint32_t biased = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound) + 127;
  const float result = p * std::bit_cast<float>(biased << 23);
  return given != given ? given : result;
}

// 1 / (1 + exp(-x)); exact at both ends.
inline float sigmoid_f32(float x) {
  return 1.0f / (1.0f + exp_f32(-x));
}

// log(x) within 2 ulp for normal x > 0; unspecified for others.
inline float log_f32(float x) {
  // x = m 2^e with m in [sqrt(1/2), sqrt(2)): the exponent of x / sqrt(1/2).
  constexpr uint32_t kRootHalf = 0x3f3504f3;
  const uint32_t above = std::bit_cast<uint32_t>(x) - kRootHalf;
  const float e = static_cast<float>(static_cast<int32_t>(above) >> 23);
  const float f = std::bit_cast<float>((above & 0x7fffff) + kRootHalf) - 1.0f;

  // The polynomial of Cephes' logf; ln 2 is split in two, so that e times the first is exact.
  float p = 7.0376836292e-2f;
  p = p * f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  const float f2 = f * f;
  return (f + (p * f * f2 - 2.12194440e-4f * e - 0.5f * f2)) + 0.693359375f * e;
}

struct SinCos {
  float sin, cos;
};

// Sine and cosine of t turns (2 pi t radians), t in [0, 1], with an absolute error below 2^-22.
inline SinCos sincos_turns_f32(float t) {
  // t = q / 4 + r, |r| <= 1/8: q rounded by adding 1.5 * 2^23, as in exp_f32.
  constexpr float kRound = 0x1.8p23f;
  const float shifted = t * 4.0f + kRound;
  const uint32_t q = std::bit_cast<uint32_t>(shifted);  // its two low bits are the quadrant
  const float a = (t - (shifted - kRound) * 0.25f) * 6.28318530718f;
  const float a2 = a * a;
  const float s =
      a + a * a2 * (-1.6666654611e-1f + a2 * (8.3321608736e-3f + a2 * -1.9515295891e-4f));
  const float c = 1.0f - 0.5f * a2 +
                  a2 * a2 * (4.1666645683e-2f + a2 * (-1.3887316255e-3f + a2 * 2.4433157118e-5f));
  const bool odd = (q & 1) != 0;
  const float sine = odd ? c : s, cosine = odd ? s : c;
  return {(q & 2) != 0 ? -sine : sine, ((q + 1) & 2) != 0 ? -cosine : cosine};
}

}  // namespace capstan::cpu
