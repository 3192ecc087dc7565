#pragma once

#include <bit>
#include <cstdint>

#include "ops/dynamic_values.h"

namespace capstan::cuda {

// The values of dynamic_values, and a table that finds the nearest of them in one lookup.
//
// Floats map to positions in ascending order: the bits of the magnitude minus those of kLowest
// (smaller magnitudes are nearest to zero), and the complement of that for negative values. A cell
// contains the positions that differ only in their lower 16 bits; it is so narrow that at most one
// boundary between codes lies in it. The upper half of its word is the code of its first position;
// adding the lower half of the position to the lower half of the word carries if it is past the
// boundary, which gives the next code.
template <bool kSign>
struct DynamicCells {
  static constexpr int32_t kLowest = kSign ? 0x34800000 : 0x34000000;  // 2^-22, 2^-23
  static constexpr int32_t kHighest = 0x3f800000;                      // 1
  static constexpr int32_t kCells = ((kHighest - kLowest) >> 16) + 1;  // above zero
  static constexpr int32_t kBelow = kSign ? kCells : 0;

  float values[256];
  uint32_t words[kBelow + kCells];

  // `size` is the bits of |x|, at most those of 1; `sign` is 0, or -1 if x is negative.
  static constexpr int32_t place(int32_t size, int32_t sign) {
    return std::max(size - kLowest, 0) ^ sign;
  }
  // Bits 16 to 23 are the code of the value nearest to x, ties to the lower; the bits above are
  // zero.
  constexpr uint32_t find(int32_t size, int32_t sign) const {
    const int32_t at = place(size, sign);
    return words[kBelow + (at >> 16)] + (static_cast<uint32_t>(at) & 0xffffu);
  }
};

template <bool kSign>
constexpr DynamicCells<kSign> make_dynamic_cells() {
  using Cells = DynamicCells<kSign>;
  Cells cells{};
  const std::array<float, 256> values = dynamic_values(kSign);
  std::copy(values.begin(), values.end(), cells.values);
  const auto last_place = [&](size_t code) {
    if (code == 255) return INT32_MAX;
    const auto bits = std::bit_cast<int32_t>((values[code] + values[code + 1]) / 2);
    return Cells::place(bits & 0x7fffffff, bits < 0 ? -1 : 0);
  };
  size_t code = 0;
  for (int32_t i = -Cells::kBelow; i < Cells::kCells; ++i) {
    const int32_t first = i * 0x10000, last = first + 0xffff;
    while (last_place(code) < first) ++code;
    const auto beyond = static_cast<uint32_t>(last - std::min(last, last_place(code)));
    cells.words[Cells::kBelow + i] = (static_cast<uint32_t>(code) << 16) + beyond;
  }
  return cells;
}

}  // namespace capstan::cuda
