#pragma once

#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/product/tile.cuh"

// Shared by attention in tiles of 64 queries by 64 keys, for all kinds of tensor cores.
namespace capstan::cuda {

// What the threads of a tile of queries know about it.
struct QueryRows {
  int begin, end, rows[2], first[2], earliest,
      latest;  // first: first visible key of each of the two rows

  __device__ QueryRows(int tile, const Visible& visible, int T, int (&firsts)[kTile])
      : begin(tile * kTile), end(min(begin + kTile, T)) {
    if (threadIdx.x < kTile)
      firsts[threadIdx.x] = visible.first(min(begin + static_cast<int>(threadIdx.x), T - 1));
    __syncthreads();
    earliest = firsts[0];
    latest = firsts[kTile - 1];
    for (int r = 0; r < 2; ++r) {
      rows[r] = begin + row_of(2 * r);
      first[r] = firsts[row_of(2 * r)];
    }
  }
  // The same if the ranges of the first and last row are known. No row is valid if the first is
  // not.
  __device__ QueryRows(int token, int earliest, int latest, const Visible& visible, int T)
      : begin(token), end(min(token + kTile, T)), earliest(earliest), latest(latest) {
    for (int r = 0; r < 2; ++r) {
      rows[r] = begin + row_of(2 * r);
      first[r] = earliest == latest ? latest : visible.first(min(rows[r], T - 1));
    }
  }
  // For the tile of keys that begins at `key`, sets the scores of keys that a row does not see to
  // `hidden`.
  __device__ void hide(float (&scores)[kColumns][4], int key, float hidden) const {
    if (!cuts(key)) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!sees(i, key + column_of(j, i))) scores[j][i] = hidden;
  }
  // Some row does not see some key of the tile that begins at `key`.
  __device__ bool cuts(int key) const {
    return key + kTile > begin + 1 || key < latest;
  }
  __device__ bool sees(int i, int key) const {
    return key <= rows[i / 2] && key >= first[i / 2];
  }
};

}  // namespace capstan::cuda
