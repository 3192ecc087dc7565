#include "model/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace capstan {
namespace {

using Kind = RopeScaling::Kind;

ModelConfig config(int64_t head_dim, double theta = 10000) {
  ModelConfig c;
  c.head_dim = head_dim;
  c.rope_theta = theta;
  return c;
}

double wavelength(double frequency) {
  return 2 * std::numbers::pi / frequency;
}

TEST(RopeFrequencies, FallGeometricallyFromOne) {
  const auto f = rope_frequencies(config(8));
  ASSERT_EQ(f.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(f[i], std::pow(10.0, -static_cast<double>(i)));
}

TEST(RopeFrequencies, LinearScalingDividesThemAll) {
  ModelConfig c = config(100, 500000);
  const auto plain = rope_frequencies(c);
  c.rope_scaling = {.kind = Kind::linear, .factor = 4};
  const auto scaled = rope_frequencies(c);
  ASSERT_EQ(scaled.size(), 50u);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 4);
}

class Llama3Rope : public testing::Test {
 protected:
  // Llama 3.1's own numbers.
  Llama3Rope() {
    plain = rope_frequencies(c);
    c.rope_scaling = {.kind = Kind::llama3,
                      .factor = 8,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4,
                      .original_positions = 8192};
    scaled = rope_frequencies(c);
  }
  ModelConfig c = config(128, 500000);
  std::vector<double> plain, scaled;
};

TEST_F(Llama3Rope, LeavesShortWavesStretchesLongOnesAndBlendsThoseBetween) {
  int kept = 0, stretched = 0, blended = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wave = wavelength(plain[i]);
    if (wave < 2048) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i]) << i;
      ++kept;
    } else if (wave > 8192) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8) << i;
      ++stretched;
    } else {
      const double smooth = (8192 / wave - 1) / 3;
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] * (smooth + (1 - smooth) / 8)) << i;
      ++blended;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(stretched, 0);
  EXPECT_GT(blended, 0);
}

TEST_F(Llama3Rope, KeepsTheOrderOfFrequencies) {
  for (size_t i = 1; i < scaled.size(); ++i) EXPECT_LT(scaled[i], scaled[i - 1]) << i;
}

// A frequency just on either border: the blend meets what is beyond it.
TEST_F(Llama3Rope, IsContinuousAtBothBorders) {
  for (const auto& [periods, stretch] : {std::pair{4.0, 1.0}, {1.0, 8.0}}) {
    for (const double off : {1 - 1e-9, 1 + 1e-9}) {
      // theta so that pair 1 of 2 has a wave of 8192 / periods: theta^(-1/2) = 2 pi periods / 8192.
      const double f = 2 * std::numbers::pi * periods / 8192 * off;
      c.head_dim = 4;
      c.rope_theta = 1 / (f * f);
      EXPECT_NEAR(rope_frequencies(c)[1] / f, 1 / stretch, 1e-7) << periods << " " << off;
    }
  }
}

TEST_F(Llama3Rope, AFactorOfOneChangesNothing) {
  c.rope_scaling.factor = 1;
  const auto same = rope_frequencies(c);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(same[i] / plain[i], 1, 1e-15) << i;
}

TEST(RopeTable, HasCosAndSinOfPositionTimesFrequencyRoundedOnce) {
  const ModelConfig c = config(6, 100);
  const auto f = rope_frequencies(c);
  const RopeTable t = rope_table(c, 5000);
  ASSERT_EQ(t.cos.size(), 15000u);
  ASSERT_EQ(t.sin.size(), 15000u);
  for (const size_t p : {0, 1, 17, 4999})
    for (size_t i = 0; i < 3; ++i) {
      const double angle = static_cast<double>(p) * f[i];
      EXPECT_EQ(t.cos[3 * p + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(t.sin[3 * p + i], static_cast<float>(std::sin(angle)));
    }
}

}  // namespace
}  // namespace capstan
