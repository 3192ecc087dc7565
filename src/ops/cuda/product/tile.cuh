#pragma once

#include "ops/cuda/device.cuh"

// The layout of results that four warps compute on tensor cores: a tile of 64 rows, 16 per warp, in
// fragments of 8 columns.
namespace capstan::cuda {

inline constexpr int kTile = 64;            // rows of a tile
inline constexpr int kColumns = kTile / 8;  // fragments of 8 columns in a row of scores

// The row of the tile, and its column, of value i of fragment j.
__device__ inline int row_of(int i) {
  return static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 +
         (i / 2) * 8;
}
__device__ inline int column_of(int j, int i) {
  return 8 * j + 2 * (static_cast<int>(threadIdx.x) % 4) + i % 2;
}

}  // namespace capstan::cuda
