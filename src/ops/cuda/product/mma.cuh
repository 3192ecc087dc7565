#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/product/async_copy.cuh"

// Tensor cores through mma.m16n8k16, bf16 with f32 sums: on any GPU with bf16.
//
// Fragments of a result: lane l has rows l / 4 and l / 4 + 8, and columns 2 (l % 4), + 1 of each 8.
namespace capstan::cuda {

__device__ inline int lane() {
  return static_cast<int>(threadIdx.x) % 32;
}

// Loads four 8 by 8 matrices from shared memory: lane l gives the address of row l % 8 of matrix l
// / 8. Lane l gets columns 2 (l % 4), + 1 of row l / 4 of each…
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row));
}
__device__ inline void load_matrices(uint32_t (&to)[4], const bf16_t* row) {
  load_matrices(to, shared_address(row));
}
// … or of its transpose.
__device__ inline void load_matrices_flipped(uint32_t (&to)[4], const bf16_t* row) {
  const uint32_t address = shared_address(row);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address));
}

// c += a b of a 16 x 16 by 16 x 8 product.
__device__ inline void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace capstan::cuda
