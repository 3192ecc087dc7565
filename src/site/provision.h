#pragma once

#include <cmath>
#include <cstdint>

namespace capstan {

// Storage and links are bought so that what is needed fills them to 80%.
inline constexpr double kFill = 0.8;
constexpr double provisioned(double need) {
  return need / kFill;
}

// How many things of `size` fit in, or are needed for, `whole`. A rounding error of the division
// neither costs nor adds one.
inline int64_t whole_in(double whole, double size) {
  return static_cast<int64_t>(std::floor(whole / size * (1 + 1e-9)));
}
inline int64_t parts_for(double whole, double size) {
  return static_cast<int64_t>(std::ceil(whole / size * (1 - 1e-9)));
}
constexpr int64_t parts_for(int64_t whole, int64_t size) {
  return (whole + size - 1) / size;
}

}  // namespace capstan
