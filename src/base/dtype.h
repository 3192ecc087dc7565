#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace capstan {

enum class DType : uint8_t { f32, bf16, f16, i32, u8, f64 };  // f64: only for scalar sums

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32: return 4;
    case DType::bf16:
    case DType::f16: return 2;
    case DType::u8: return 1;
    case DType::f64: return 8;
  }
  return 0;
}

// The types of two bytes that ops compute with, besides f32.
constexpr bool is_narrow(DType t) {
  return t == DType::bf16 || t == DType::f16;
}
constexpr bool is_floating(DType t) {
  return t == DType::f32 || is_narrow(t);
}

constexpr std::string_view name_of(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::bf16: return "bf16";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
    case DType::f64: return "f64";
  }
  return "?";
}

// The upper half of an f32. Conversion from f32 rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;

  bf16() = default;
  explicit bf16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = u + 0x7fff + ((u >> 16) & 1);
    const uint32_t quiet_nan = u | 0x400000;
    bits = static_cast<uint16_t>((value != value ? quiet_nan : rounded) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

// IEEE binary16. Conversion from f32 rounds to nearest even, to infinity from 65520 on; NaN stays
// NaN. Both directions are exact where subnormal f32 count as zero, too.
struct f16 {
  uint16_t bits = 0;

  f16() = default;
  explicit f16(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = u & 0x7fffffff;
    uint32_t half;
    if (magnitude > 0x7f800000) {  // NaN: stays quiet and keeps the top of its payload
      half = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    } else if (magnitude >= 0x47800000) {  // 2^16 and above, infinity included
      half = 0x7c00;
    } else if (magnitude >= 0x38800000) {  // normal in f16; rounding may carry into infinity
      const uint32_t rebased = magnitude - 0x38000000;
      half = (rebased + 0xfff + ((rebased >> 13) & 1)) >> 13;
    } else {  // subnormal in f16: an f32 addition does the rounding
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
    }
    bits = static_cast<uint16_t>(((u >> 16) & 0x8000) | half);
  }
  explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16, magnitude = bits & 0x7fff;
    // As the upper bits of an f32, whose exponent counts from 112 less.
    const uint32_t wide = magnitude >= 0x7c00 ? (magnitude << 13) + 0x70000000
                          : magnitude >= 0x400
                              ? (magnitude << 13) + 0x38000000
                              : std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
    return std::bit_cast<float>(sign | wide);
  }
};

template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "no DType for this C++ type");
  return DType::u8;
}();
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;

}  // namespace capstan
