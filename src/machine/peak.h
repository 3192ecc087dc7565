#pragma once

#include "tensor/queue.h"

namespace capstan {

// Measures the FLOP/s of the device in a product of two matrices of this type, in some 50 ms. On
// the CPU the matrices are f32 and fit in cache; on a GPU those of f32 may be multiplied in TF32.
// MFU is relative to it. 0 if the run left too little GPU memory to measure.
double gemm_peak(Device device, DType type, bool tf32 = false);

}  // namespace capstan
