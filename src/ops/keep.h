#pragma once

#include <algorithm>
#include <cstdint>

namespace capstan {

// How dropout decides: it keeps a value if its half of the key's stream (base/rng.h) is `least` or
// more. p is rounded to a multiple of 2^-16 below 1, and `factor` uses the rounded p, so the mean
// is preserved.
struct Keep {
  explicit Keep(float p)
      : least(std::min(static_cast<uint32_t>(p * 65536.0f + 0.5f), 65535u)),
        factor(65536.0f / static_cast<float>(65536u - least)) {}

  uint32_t least;
  float factor;  // scale of the kept values
};

}  // namespace capstan
