#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/product/async_copy.cuh"

// Tensor cores through mma.sync: f16 on any GPU from Turing on, bf16 from Ampere on
// (Context::has_mma); f32 sums.
//
// Fragments of a result: lane l has rows l / 4 and l / 4 + 8, and columns 2 (l % 4), + 1 of each 8.
namespace capstan::cuda {

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

// Loads four 8 by 8 matrices from shared memory: lane l gives the address of row l % 8 of matrix l
// / 8. Lane l gets columns 2 (l % 4), + 1 of row l / 4 of each…
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
#endif
}
__device__ inline void load_matrices(uint32_t (&to)[4], const void* row) {
  load_matrices(to, shared_address(row));
}
// … or of its transpose.
__device__ inline void load_matrices_flipped(uint32_t (&to)[4], const void* row) {
  const uint32_t address = shared_address(row);
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
#endif
}

// c += a b of a 16 x 16 by 16 x 8 product, of bf16 or f16.
template <class T>
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  constexpr bool kHalf = std::is_same_v<T, f16_t>;
#if __CUDA_ARCH__ >= 800
  if constexpr (kHalf)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
  if constexpr (kHalf) {  // in two halves of eight terms each
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b0));
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[2]), "r"(a[3]), "r"(b1));
  } else {
    __trap();  // no run reaches this: require_precision
  }
#else
  __trap();
#endif
}

}  // namespace capstan::cuda
