#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace capstan {

// Whether a call may use all threads of parallel_for. During a training step it must not: it would
// create a second team of threads.
enum class Threads : uint8_t { all, one };

// Copies n values between host buffers, converting among f32, bf16 and f16 with rounding to nearest
// even. `from` may be unaligned; `to` must be aligned. Returns whether every finite value stayed
// finite: f16 ends at 65504.
bool convert(void* to, DType to_type, const std::byte* from, DType from_type, int64_t n,
             Threads threads = Threads::all);

bool is_weight_type(DType t);  // one of those three

}  // namespace capstan
