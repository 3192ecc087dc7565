#pragma once

#include <utility>

#include "base/rng.h"
#include "tensor/tensor.h"

namespace capstan {

// The key of an op's random numbers: known at the call, or (except its site) on the device and read
// when the op runs, like a Scalar.
struct RandomKey {
  static constexpr int64_t kWords = 4;

  RandomKey(const RngKey& key) : value(key) {}
  RandomKey(Tensor words, uint32_t site) : value{.site = site}, at(std::move(words)) {}

  RngKey value;
  Tensor at;  // i32 [kWords]: seed and step, lower halves first. Absent: use `value`
};

// The key with these words.
constexpr RngKey key_of(const int32_t* words, uint32_t site) {
  const auto joined = [&](int i) {
    return uint64_t{static_cast<uint32_t>(words[i + 1])} << 32 | static_cast<uint32_t>(words[i]);
  };
  return {.seed = joined(0), .step = joined(2), .site = site};
}

}  // namespace capstan
