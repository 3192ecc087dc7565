#include "ops/cpu/dynamic_map.h"

#include <algorithm>
#include <limits>

#include "ops/dynamic_values.h"

namespace capstan::cpu {

DynamicMap::DynamicMap(bool sign) : values_(dynamic_values(sign)) {
  for (size_t i = 0; i + 1 < 256; ++i) middles_[i] = (values_[i] + values_[i + 1]) / 2;
  middles_[255] = std::numeric_limits<float>::infinity();
  for (uint32_t cell = 0; cell < lowest_.size(); ++cell) {
    const bool negative = cell >> 15 != 0;
    const auto lowest = std::bit_cast<float>(cell << 16 | (negative ? 0xffffu : 0u));
    const auto at = std::lower_bound(middles_.begin(), middles_.end() - 1, lowest);
    lowest_[cell] = static_cast<uint8_t>(at - middles_.begin());
  }
}

const DynamicMap& DynamicMap::with_sign() {
  static const DynamicMap map(true);
  return map;
}

const DynamicMap& DynamicMap::without_sign() {
  static const DynamicMap map(false);
  return map;
}

}  // namespace capstan::cpu
