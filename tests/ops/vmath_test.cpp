#include "ops/cpu/vmath.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace capstan::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// In units of the last place of the true value.
double exp_error(float x, float found) {
  const double exact = std::exp(double{x});
  const auto near = static_cast<float>(exact);
  return std::abs(double{found} - exact) / (double{std::nextafter(near, kInf)} - double{near});
}

TEST(ExpF32, IsWithinTwoUlpInVectorsAndAlone) {
  double worst = 0;
  for (float start = -87.3f; start < 88.3f; start += 0.01f) {
    std::array<float, 39> x, y;  // vectors and a rest
    for (size_t i = 0; i < x.size(); ++i) x[i] = start + 0.00025f * static_cast<float>(i);
#pragma omp simd
    for (size_t i = 0; i < x.size(); ++i) y[i] = exp_f32(x[i]);
    for (size_t i = 0; i < x.size(); ++i) {
      worst = std::max(worst, exp_error(x[i], y[i]));
      ASSERT_EQ(y[i], exp_f32(x[i])) << x[i];
    }
  }
  EXPECT_LE(worst, 2.0);
}

TEST(ExpF32, IsAccurateForTinyArguments) {
  for (float x = 1; x > 1e-40f; x /= 3) {
    EXPECT_LE(exp_error(x, exp_f32(x)), 2.0) << x;
    EXPECT_LE(exp_error(-x, exp_f32(-x)), 2.0) << -x;
  }
}

TEST(ExpF32, KnowsItsEnds) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  for (const float x : {-87.7f, -100.0f, -1e30f, -kInf}) EXPECT_EQ(exp_f32(x), 0.0f) << x;
  for (const float x : {88.4f, 88.7f, 100.0f, 1e30f, kInf}) EXPECT_EQ(exp_f32(x), kInf) << x;
  EXPECT_TRUE(std::isnan(exp_f32(NAN)));
  EXPECT_TRUE(std::isnan(exp_f32(-NAN)));
}

TEST(SigmoidF32, Saturates) {
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(sigmoid_f32(kInf), 1.0f);
  EXPECT_EQ(sigmoid_f32(-kInf), 0.0f);
  EXPECT_TRUE(std::isnan(sigmoid_f32(NAN)));
}

TEST(LogF32, IsWithinTwoUlp) {
  double worst = 0;
  for (float x = 0x1p-32f; x < 4.0f; x *= 1.0001f) {
    const double exact = std::log(double{x});
    const auto near = static_cast<float>(exact);
    const double ulp = std::abs(double{std::nextafter(near, kInf)} - double{near});
    worst = std::max(worst, std::abs(double{log_f32(x)} - exact) / ulp);
  }
  EXPECT_LT(worst, 2);
  EXPECT_EQ(log_f32(1.0f), 0.0f);
}

TEST(SinCosF32, AreNearInEveryQuadrant) {
  double worst = 0;
  for (int i = 0; i <= 100000; ++i) {
    const float t = static_cast<float>(i) / 100000;
    const SinCos found = sincos_turns_f32(t);
    worst = std::max(worst, std::abs(double{found.sin} - std::sin(2 * M_PI * double{t})));
    worst = std::max(worst, std::abs(double{found.cos} - std::cos(2 * M_PI * double{t})));
  }
  EXPECT_LT(worst, 0x1p-22);
}

}  // namespace
}  // namespace capstan::cpu
