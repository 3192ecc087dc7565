#pragma once

#include "tensor/queue.h"

namespace capstan {

// What the device reaches in a product of two matrices of this type, in FLOP/s: measured once per
// process, in some 50 ms. On the CPU they are f32 and fit in cache. It is what MFU is a part of. 0
// where a run has left no room for them on the GPU.
double gemm_peak(Device device, DType type);

}  // namespace capstan
