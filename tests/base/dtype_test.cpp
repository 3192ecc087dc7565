#include "base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace capstan {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

f16 f16_of_bits(uint32_t bits) {
  f16 h;
  h.bits = static_cast<uint16_t>(bits);
  return h;
}

bf16 bf16_of_bits(uint32_t bits) {
  bf16 b;
  b.bits = static_cast<uint16_t>(bits);
  return b;
}

// The value that an f16 stands for, from the definition of the format.
double f16_value(uint32_t bits) {
  const int exponent = static_cast<int>((bits >> 10) & 0x1f);
  const double mantissa = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// What rounding x to nearest even must give, in f64 where every step is exact: the format's values
// near x are the multiples of one quantum, and nearbyint rounds ties to even.
double nearest(double x, int mantissa_bits, int lowest_exponent, double overflow) {
  const int exponent = std::max(std::ilogb(x), lowest_exponent);
  const double quantum = std::ldexp(1, exponent - mantissa_bits);
  const double rounded = std::nearbyint(x / quantum) * quantum;
  return std::abs(rounded) >= overflow ? std::copysign(kInf, x) : rounded;
}
double nearest_f16(double x) {
  return x == 0 ? x : nearest(x, 10, -14, 65536);
}
double nearest_bf16(double x) {
  return x == 0 ? x : nearest(x, 7, -126, 0x1p128);
}

// Floats at, just below and just above every point where the rounding to `upper` bits changes, and
// every exponent with some mantissas in between.
std::vector<float> hard_floats(int dropped_bits) {
  std::vector<float> result;
  const uint32_t half = uint32_t{1} << (dropped_bits - 1);
  for (uint32_t kept = 0; kept < (uint32_t{0x7f800000} >> dropped_bits); ++kept)
    for (const uint32_t rest : {uint32_t{0}, uint32_t{1}, half - 1, half, half + 1, 2 * half - 1})
      result.push_back(std::bit_cast<float>((kept << dropped_bits) | rest));
  return result;
}

TEST(F16, EveryValueHasItsDefinedMeaning) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7c00) == 0x7c00) continue;
    const auto value = static_cast<float>(f16_of_bits(bits));
    ASSERT_EQ(value, f16_value(bits)) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
  }
}

TEST(F16, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t back = f16(static_cast<float>(f16_of_bits(bits))).bits;
    const bool is_nan = (bits & 0x7fff) > 0x7c00;
    // A signalling NaN comes back quiet, with the rest of its payload.
    ASSERT_EQ(back, is_nan ? bits | 0x200 : bits) << bits;
  }
}

TEST(F16, InfinityAndNaNStayWhatTheyAre) {
  EXPECT_EQ(static_cast<float>(f16_of_bits(0x7c00)), kInf);
  EXPECT_EQ(static_cast<float>(f16_of_bits(0xfc00)), -kInf);
  EXPECT_TRUE(std::isnan(static_cast<float>(f16_of_bits(0x7c01))));
  EXPECT_EQ(f16(kInf).bits, 0x7c00);
  EXPECT_EQ(f16(-kInf).bits, 0xfc00);
  // A NaN whose payload lies in the bits that are dropped must not turn into infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::bit_cast<float>(0x7f800001)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(f16(std::bit_cast<float>(0xffffffff)))));
}

TEST(F16, RoundsToNearestEvenAsF64ReasoningSays) {
  for (const float x : hard_floats(13)) {
    const auto expected = static_cast<float>(nearest_f16(x));
    ASSERT_EQ(static_cast<float>(f16(x)), expected) << x;
    ASSERT_EQ(static_cast<float>(f16(-x)), -expected) << x;
  }
}

TEST(F16, SubnormalTiesGoToEven) {
  EXPECT_EQ(f16(0x1p-25f).bits, 0);    // half of the smallest: a tie, 0 is even
  EXPECT_EQ(f16(0x1.8p-24f).bits, 2);  // 1.5 of it: a tie, 2 is even
  EXPECT_EQ(f16(0x1.000002p-25f).bits, 1);
  EXPECT_EQ(f16(-0x1p-25f).bits, 0x8000);    // the sign of a zero is kept
  EXPECT_EQ(f16(0x1.ffep-15f).bits, 0x400);  // rounds up into the normal numbers
}

TEST(F16, OverflowBeginsHalfAStepAboveTheLargest) {
  EXPECT_EQ(f16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(f16(std::nextafter(65520.0f, 0.0f)).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(f16(std::numeric_limits<float>::max()).bits, 0x7c00);
}

TEST(BF16, EveryValueSurvivesARoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint32_t back = bf16(static_cast<float>(bf16_of_bits(bits))).bits;
    const bool is_nan = (bits & 0x7fff) > 0x7f80;
    ASSERT_EQ(back, is_nan ? bits | 0x40 : bits) << bits;
  }
}

TEST(BF16, RoundsToNearestEvenAsF64ReasoningSays) {
  for (const float x : hard_floats(16)) {
    const auto expected = static_cast<float>(nearest_bf16(x));
    ASSERT_EQ(static_cast<float>(bf16(x)), expected) << x;
    ASSERT_EQ(static_cast<float>(bf16(-x)), -expected) << x;
  }
}

TEST(BF16, TiesOverflowAndNaN) {
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3f808000)).bits, 0x3f80);  // tie, down to even
  EXPECT_EQ(bf16(std::bit_cast<float>(0x3f818000)).bits, 0x3f82);  // tie, up to even
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bf16(-kInf).bits, 0xff80);
  EXPECT_EQ(bf16(-0.0f).bits, 0x8000);
  EXPECT_EQ(bf16(std::bit_cast<float>(0x00000001)).bits, 0);  // the smallest f32
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0x7f800001)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bf16(std::bit_cast<float>(0xffffffff)))));
}

TEST(DTypes, SizesAndNamesAgreeWithTheTypes) {
  EXPECT_EQ(size_of(dtype_of<float>), 4);
  EXPECT_EQ(size_of(dtype_of<double>), 8);
  EXPECT_EQ(size_of(dtype_of<bf16>), static_cast<int64_t>(sizeof(bf16)));
  EXPECT_EQ(size_of(dtype_of<f16>), static_cast<int64_t>(sizeof(f16)));
  EXPECT_EQ(size_of(dtype_of<int32_t>), 4);
  EXPECT_EQ(size_of(dtype_of<uint8_t>), 1);
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  EXPECT_EQ(name_of(DType::f64), "f64");
}

}  // namespace
}  // namespace capstan
