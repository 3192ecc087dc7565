#pragma once

namespace capstan {

// What this machine's CPUs reach in a product of two f32 matrices that fit in cache, in FLOP/s:
// measured once per process, in some 50 ms. It is what MFU is a part of on a CPU.
double gemm_peak();

}  // namespace capstan
