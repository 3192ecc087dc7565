#pragma once

#include "tensor/queue.h"

namespace capstan {

// What the device reaches in a product of two matrices of this type, in FLOP/s: measured once per
// process, in some 50 ms. On the CPU they are f32 and fit in cache. It is what MFU is a part of.
double gemm_peak(Device device, DType type);

}  // namespace capstan
