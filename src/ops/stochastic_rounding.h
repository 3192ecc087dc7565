#pragma once

#include <cstdint>

// Rounding by draws, the same bits on every device (OptimizerOperands::rounding).
namespace capstan {

// The bits of an f32, and 16 random ones: the bits of the f32 which is the chosen bf16. NaN and
// infinity stay.
constexpr uint32_t stochastic_bf16(uint32_t bits, uint32_t draw) {
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return finite ? (bits + draw) & 0xffff0000u : bits;
}

// The half of a word that value i takes.
constexpr uint32_t half_of(uint32_t word, int64_t i) {
  return i % 2 == 0 ? word & 0xffffu : word >> 16;
}

}  // namespace capstan
