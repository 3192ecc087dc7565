#pragma once

#include <string_view>

// OpenBLAS has its kernels many times, for the vectors of each processor, and calls such a set a
// core: "Haswell", "SkylakeX", "neoversen1". Which of them run on a processor, and which should.
namespace capstan::cpu {

// What a processor and its operating system offer, as far as it decides that.
struct Vectors {
  bool avx = false, avx2 = false;  // x86-64; avx2: with fused multiply-add
  bool avx512 = false;             // its parts F, CD, BW, DQ and VL
  bool armv82 = false;             // Arm's instructions of version 8.2, with dot products
};
Vectors vectors_here();

// The kernels to take instead of those that OpenBLAS chose; empty if its choice stands.
//
// It chooses by the model of the processor. One that it does not know, it may take for one without
// AVX2, for which its products take several times as long. If it chose any kernels with AVX2 or
// AVX-512, it knew the processor. On Arm its choice always stands: the kernels for an unknown
// processor have the same vectors as all others.
std::string_view faster_kernels(std::string_view chosen, const Vectors& vectors);

// Whether these kernels run on such a processor. OpenBLAS does not check this when it is told to
// take them. False for kernels that this function does not know.
bool can_run(std::string_view kernels, const Vectors& vectors);

}  // namespace capstan::cpu
