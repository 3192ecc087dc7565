#pragma once

#include <cstdint>

#include "base/names.h"

namespace capstan {

// How frozen matrices are stored (ops/quantize.h).
//
// nf4: the 16 values are quantiles of a normal; fp4: they have a sign, two bits of exponent and one
// of mantissa. 4.5 bits per value, or 4.127 with double quantization (dq). int8: 255 even steps.
enum class Quantize : uint8_t { none, nf4, nf4_dq, fp4, fp4_dq, int8 };

// LitGPT's names, with or without "bnb.".
template <>
struct NameTable<Quantize> {
  static constexpr Named<Quantize> rows[] = {{Quantize::nf4, "bnb.nf4"},
                                             {Quantize::nf4_dq, "bnb.nf4-dq"},
                                             {Quantize::fp4, "bnb.fp4"},
                                             {Quantize::fp4_dq, "bnb.fp4-dq"},
                                             {Quantize::int8, "bnb.int8-training"},
                                             {Quantize::int8, "bnb.int8"},
                                             {Quantize::nf4, "nf4"},
                                             {Quantize::nf4_dq, "nf4-dq"},
                                             {Quantize::fp4, "fp4"},
                                             {Quantize::fp4_dq, "fp4-dq"},
                                             {Quantize::int8, "int8-training"},
                                             {Quantize::none, "none"}};
};

}  // namespace capstan
