#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace capstan::cpu {

// The values of 8-bit dynamic quantization (dynamic_values), and a fast nearest-value search.
class DynamicMap {
 public:
  static const DynamicMap& with_sign();
  static const DynamicMap& without_sign();

  float operator[](uint8_t code) const { return values_[code]; }
  const std::array<float, 256>& values() const { return values_; }

  // The code of the value nearest to x; ties go to the lower. NaN gets an arbitrary code.
  uint8_t nearest(float x) const {
    // The cells of `lowest_` are so narrow that each contains at most one boundary.
    const uint8_t code = lowest_[std::bit_cast<uint32_t>(x) >> 16];
    return static_cast<uint8_t>(code + (x > middles_[code] ? 1 : 0));
  }

 private:
  explicit DynamicMap(bool sign);

  std::array<float, 256> values_{};
  std::array<float, 256> middles_{};  // between code and code + 1; infinity after the last
  // Indexed by the upper half of a float: the code of the lowest such float. Few of these 64 KiB
  // are ever touched: moments are in [-1, 1] and above 1e-7.
  std::array<uint8_t, 1 << 16> lowest_{};
};

}  // namespace capstan::cpu
