#include "ops/cpu/dynamic_map.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace capstan::cpu {
namespace {

std::array<float, 256> make_values(bool sign) {
  constexpr std::array<float, 7> kDecades = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  std::array<float, 256> values = {0.0f, 1.0f};
  size_t count = 2;
  for (int i = 0; i < 7; ++i) {
    const int items = (sign ? 1 : 2) << i;
    const float step = (1.0f - 0.1f) / static_cast<float>(items);
    const auto boundary = [&](int k) {  // as torch.linspace: from both ends
      return 2 * k < items + 1 ? std::fma(step, static_cast<float>(k), 0.1f)
                               : std::fma(-step, static_cast<float>(items - k), 1.0f);
    };
    const float scale = kDecades[static_cast<size_t>(i)];
    for (int k = 0; k < items; ++k) {
      const float middle = (boundary(k) + boundary(k + 1)) / 2;
      values[count++] = scale * middle;
      if (sign) values[count++] = -scale * middle;
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

DynamicMap::DynamicMap(bool sign) : values_(make_values(sign)) {
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
