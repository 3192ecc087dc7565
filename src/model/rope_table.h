#pragma once

#include <vector>

#include "model/config.h"

namespace capstan {

// The rotation of pair i of a head per position: theta^(-2i/D), scaled according to the config. D/2
// values.
std::vector<double> rope_frequencies(const ModelConfig& config);

// cos and sin of position * frequency, each `positions` rows of D/2 values. Angles are computed in
// f64 and rounded once.
struct RopeTable {
  std::vector<float> cos, sin;
};
RopeTable rope_table(const ModelConfig& config, int64_t positions);

}  // namespace capstan
