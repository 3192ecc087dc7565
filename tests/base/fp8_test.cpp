#include "base/fp8.h"

#include <gtest/gtest.h>

#include <vector>

namespace capstan::test {
namespace {

constexpr Fp8 kFormats[] = {Fp8::e4m3, Fp8::e5m2};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a code means, from the formats' definitions.
double value_of(Fp8 format, int code) {
  const int mantissa_bits = format == Fp8::e4m3 ? 3 : 2, bias = format == Fp8::e4m3 ? 7 : 15;
  const int exponent = (code & 0x7f) >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (format == Fp8::e4m3 && (code & 0x7f) == 0x7f) return double{kNan};
  if (format == Fp8::e5m2 && exponent == 31) return mantissa == 0 ? sign * INFINITY : double{kNan};
  const double unit = std::ldexp(1.0, std::max(exponent, 1) - bias - mantissa_bits);
  return sign * (mantissa + (exponent > 0 ? 1 << mantissa_bits : 0)) * unit;
}

// The finite values from 0 on, by code.
std::vector<double> magnitudes(Fp8 format) {
  std::vector<double> values;
  for (int code = 0; code < 128; ++code)
    if (std::isfinite(value_of(format, code))) values.push_back(value_of(format, code));
  return values;
}

TEST(Fp8, HasTheRangeOfItsDefinition) {
  EXPECT_EQ(magnitudes(Fp8::e4m3).size(), 127U);
  EXPECT_EQ(magnitudes(Fp8::e5m2).size(), 124U);
  EXPECT_EQ(magnitudes(Fp8::e4m3)[1], 0x1p-9);
  EXPECT_EQ(magnitudes(Fp8::e5m2)[1], 0x1p-16);
  for (const Fp8 format : kFormats) EXPECT_EQ(magnitudes(format).back(), double{largest(format)});
}

TEST(Fp8, EveryNumberOfTheFormatRoundsToItself) {
  for (const Fp8 format : kFormats)
    for (int code = 0; code < 256; ++code) {
      const double value = value_of(format, code);
      if (!std::isfinite(value)) continue;
      const float rounded = round_to(format, static_cast<float>(value));
      EXPECT_EQ(double{rounded}, value) << code;
      EXPECT_EQ(std::signbit(rounded), code >= 128) << code;
    }
}

TEST(Fp8, BetweenTwoNumbersTheNearerIsTakenAndHalfWayTheEvenCode) {
  for (const Fp8 format : kFormats) {
    const auto values = magnitudes(format);
    for (size_t i = 0; i + 1 < values.size(); ++i) {
      const auto half = static_cast<float>((values[i] + values[i + 1]) / 2);
      for (const float sign : {1.0f, -1.0f}) {
        const auto rounded = [&](float x) { return double{sign * round_to(format, sign * x)}; };
        EXPECT_EQ(rounded(half), values[i % 2 == 0 ? i : i + 1]) << i;
        EXPECT_EQ(rounded(std::nextafter(half, 0.0f)), values[i]) << i;
        EXPECT_EQ(rounded(std::nextafter(half, kInfinity)), values[i + 1]) << i;
      }
    }
  }
}

TEST(Fp8, WhatIsTooLargeIsTheLargestAndNanIsNan) {
  for (const Fp8 format : kFormats) {
    const float most = largest(format);
    for (const float x : {most * 1.0001f, most * 1.07f, most * 2, 1e30f, kInfinity}) {
      EXPECT_EQ(round_to(format, x), most);
      EXPECT_EQ(round_to(format, -x), -most);
    }
    EXPECT_TRUE(std::isnan(round_to(format, kNan)));
    EXPECT_TRUE(std::isnan(round_to(format, -kNan)));
    for (const float x : {0.0f, 1e-45f, 1e-38f}) EXPECT_EQ(round_to(format, x), 0);
  }
}

TEST(Fp8, TheScaleBringsTheLargestMagnitudeToTheFormats) {
  for (const Fp8 format : kFormats) {
    for (const float amax : {1e-30f, 0.003f, 1.0f, 3.0f, 448.0f, 1e30f, 3.4e38f})
      EXPECT_EQ(round_to(format, amax * fp8_scale(format, amax)), largest(format)) << amax;
    EXPECT_EQ(fp8_scale(format, 0), 1);
    EXPECT_EQ(fp8_scale(format, 1e-45f), 0x1p126f);
    EXPECT_TRUE(std::isnan(fp8_scale(format, kInfinity)));
    EXPECT_TRUE(std::isnan(fp8_scale(format, kNan)));
  }
}

}  // namespace
}  // namespace capstan::test
