#pragma once

#include <cuda.h>

#include "tensor/tensor.h"

namespace capstan::cuda {

// A bf16 matrix as Hopper's copy engine takes it (tma.cuh): boxes of 64 columns, which are rows of
// 128 bytes in shared memory, permuted as in wgmma.cuh, and of so many rows, 256 at the most.

// Whether there can be one: neither side is 0 or above 2^30, the width is a multiple of 8, and rows
// begin at multiples of 16 bytes.
bool can_map(const Tensor& matrix);

// Refers to the matrix's memory. False where the driver does not make it, or has none.
[[nodiscard]] bool map_matrix(CUtensorMap& map, const Tensor& matrix, int rows);

// Heads of tokens, [T, H, D]: boxes of 64 channels of one head of 64 tokens. False also where sides
// or strides are none that the copy engine takes, as above.
[[nodiscard]] bool map_heads(CUtensorMap& map, const Tensor& heads_THD);

}  // namespace capstan::cuda
