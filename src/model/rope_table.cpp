#include "model/rope_table.h"

#include <cmath>
#include <numbers>

namespace capstan {
namespace {

// Llama 3's rule: keeps wavelengths that are short compared with the original context, scales long
// ones by `factor`, and interpolates between them.
double llama3_frequency(double frequency, const RopeScaling& s) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto context = static_cast<double>(s.original_positions);
  if (wavelength < context / s.high_freq_factor) return frequency;
  if (wavelength > context / s.low_freq_factor) return frequency / s.factor;
  const double smooth =
      (context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return (1 - smooth) * frequency / s.factor + smooth * frequency;
}

}  // namespace

std::vector<double> rope_frequencies(const ModelConfig& config) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < config.head_dim; i += 2) {
    const double f =
        std::pow(config.rope_theta, -static_cast<double>(i) / static_cast<double>(config.head_dim));
    switch (config.rope_scaling.kind) {
      case RopeScaling::Kind::none: frequencies.push_back(f); break;
      case RopeScaling::Kind::linear: frequencies.push_back(f / config.rope_scaling.factor); break;
      case RopeScaling::Kind::llama3:
        frequencies.push_back(llama3_frequency(f, config.rope_scaling));
        break;
    }
  }
  return frequencies;
}

RopeTable rope_table(const ModelConfig& config, int64_t positions) {
  const std::vector<double> frequencies = rope_frequencies(config);
  RopeTable table;
  for (int64_t p = 0; p < positions; ++p) {
    for (const double f : frequencies) {
      const double angle = static_cast<double>(p) * f;
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace capstan
