#pragma once

#include <array>
#include <cstdint>
#include <string_view>

// Cyclic redundancy checks of 32 bits, by their reflected polynomials.
namespace capstan {

template <uint32_t kPolynomial>
uint32_t crc32_by(std::string_view bytes) {
  static constexpr auto kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? kPolynomial : 0u);
      table[i] = c;
    }
    return table;
  }();
  uint32_t c = ~0u;
  for (const char byte : bytes) c = (c >> 8) ^ kTable[(c ^ static_cast<uint8_t>(byte)) & 0xff];
  return ~c;
}

// Castagnoli's: TensorBoard's files.
inline uint32_t crc32c(std::string_view bytes) {
  return crc32_by<0x82f63b78u>(bytes);
}
// zlib's: W&B's files.
inline uint32_t crc32(std::string_view bytes) {
  return crc32_by<0xedb88320u>(bytes);
}

}  // namespace capstan
