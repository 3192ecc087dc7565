#pragma once

#include <algorithm>
#include <cstdint>

namespace capstan {

// What dropout keeps: value i where half(i) of the key's stream (base/rng.h) is `least` or more. p
// is rounded to a multiple of 2^-16 below 1, and `factor` is for what it is rounded to: a mean
// stays what it was.
struct Keep {
  explicit Keep(float p)
      : least(std::min(static_cast<uint32_t>(p * 65536.0f + 0.5f), 65535u)),
        factor(65536.0f / static_cast<float>(65536u - least)) {}

  uint32_t least;
  float factor;  // by which the values that are kept grow
};

}  // namespace capstan
