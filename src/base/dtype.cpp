#include "base/dtype.h"

namespace capstan {

f16::f16(float value) {
  const auto u = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((u >> 16) & 0x8000);
  const uint32_t magnitude = u & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN: stays quiet and keeps the top of its payload
    bits = static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  } else if (magnitude >= 0x47800000) {  // 2^16 and above, infinity included
    bits = static_cast<uint16_t>(sign | 0x7c00);
  } else if (magnitude >= 0x38800000) {  // normal in f16; rounding may carry into infinity
    const uint32_t rebased = magnitude - 0x38000000;
    bits = static_cast<uint16_t>(sign | ((rebased + 0xfff + ((rebased >> 13) & 1)) >> 13));
  } else {  // subnormal in f16: an f32 addition does the rounding
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
}

f16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t wide = exponent == 31 ? 0xff : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

}  // namespace capstan
