#pragma once

#include <cstdint>

// Stochastic rounding, with the same bits on every device (OptimizerOperands::rounding).
namespace capstan {

// From the bits of an f32 and 16 random bits, the bits of the f32 that equals the chosen bf16. NaN
// and infinity are unchanged.
constexpr uint32_t stochastic_bf16(uint32_t bits, uint32_t draw) {
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return finite ? (bits + draw) & 0xffff0000u : bits;
}

// The half of a word for value i.
constexpr uint32_t half_of(uint32_t word, int64_t i) {
  return i % 2 == 0 ? word & 0xffffu : word >> 16;
}

}  // namespace capstan
