#pragma once

#include <cuda.h>

#include "tensor/tensor.h"

namespace capstan::cuda {

// A bf16 matrix for Hopper's copy engine (tma.cuh): boxes of 64 columns, stored in shared memory as
// rows of 128 bytes, swizzled as in wgmma.cuh, with up to 256 rows.

// Whether a map is possible: neither extent is 0 or above 2^30, the width is a multiple of 8, and
// rows are aligned to 16 bytes.
bool can_map(const Tensor& matrix);

// Refers to the matrix's memory. False if the driver cannot create it.
[[nodiscard]] bool map_matrix(CUtensorMap& map, const Tensor& matrix, int rows);

// Heads of tokens, [T, H, D]: boxes of 64 channels of one head of 64 tokens. False also if the copy
// engine does not support the extents or strides, as above.
[[nodiscard]] bool map_heads(CUtensorMap& map, const Tensor& heads_THD);

}  // namespace capstan::cuda
