#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace capstan {

// The 256 values of 8-bit dynamic quantization (Dettmers, 2015), ascending: seven decades, each
// with twice the values of the one below, at the midpoints of equal steps between a tenth and one;
// and 0 and 1. With a sign, each decade also has the negated values; without one, twice as many.
// Bit for bit bitsandbytes' create_dynamic_map.
constexpr std::array<float, 256> dynamic_values(bool sign) {
  constexpr std::array<float, 7> kDecades = {1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f, 1e-1f, 1};
  std::array<float, 256> values = {0.0f, 1.0f};
  size_t count = 2;
  for (int i = 0; i < 7; ++i) {
    const int items = (sign ? 1 : 2) << i;
    const double step{(1.0f - 0.1f) / static_cast<float>(items)};
    // As in torch.linspace: from both ends, and rounded once, since these sums are exact in f64.
    const auto boundary = [&](int k) {
      return static_cast<float>(2 * k < items + 1 ? double{0.1f} + step * k
                                                  : 1.0 - step * (items - k));
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

}  // namespace capstan
