#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

// Floating-point numbers of 8 bits (Micikevicius et al., "FP8 formats for deep learning", 2022).
namespace capstan {

//         bits: sign, exponent, mantissa   largest   smallest above 0   infinity
//   e4m3        1, 4, 3                        448              2^-9    none
//   e5m2        1, 5, 2                     57,344             2^-16    has one; not used here
enum class Fp8 : uint8_t { e4m3, e5m2 };

constexpr float largest(Fp8 format) {
  return format == Fp8::e4m3 ? 448.0f : 57344.0f;
}

// The scale that maps a tensor with the largest magnitude `amax` to the range of a format: largest
// / amax, at most 2^126 (so that its inverse is not subnormal), 1 for a tensor of zeros, and NaN if
// amax is not finite, so that the whole tensor becomes NaN.
constexpr float fp8_scale(Fp8 format, float amax) {
  if (amax == 0) return 1;
  if (!(amax <= std::numeric_limits<float>::max())) return std::numeric_limits<float>::quiet_NaN();
  const float scale = largest(format) / amax;
  return scale < 0x1p126f ? scale : 0x1p126f;
}

// The nearest number of the format, ties to even; saturates at the largest. NaN stays NaN.
inline float round_to(Fp8 format, float x) {
  const uint32_t mantissa = format == Fp8::e4m3 ? 3 : 2;
  const uint32_t lowest = format == Fp8::e4m3 ? 127 - 6 : 127 - 14;  // exponent of a normal number
  const float magnitude = std::min(std::abs(x), largest(format));
  // Numbers of the format with this exponent are as far apart as f32 numbers with the larger one:
  // adding such a number does the rounding.
  const uint32_t exponent = std::max(std::bit_cast<uint32_t>(magnitude) >> 23, lowest);
  const auto shift = std::bit_cast<float>((exponent + 23 - mantissa) << 23);
  return std::copysign((magnitude + shift) - shift, x);
}

}  // namespace capstan
