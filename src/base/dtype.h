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

// IEEE binary16, only for storage: some checkpoints use it. Conversion rounds to nearest even.
struct f16 {
  uint16_t bits = 0;

  f16() = default;
  explicit f16(float value);
  explicit operator float() const;
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
