#pragma once

#include "ops/cuda/attention/attention_rows.cuh"
#include "ops/cuda/attention/attention_softmax.cuh"
#include "ops/cuda/product/mma.cuh"

// Attention in tiles of 64 queries by 64 keys, on the tensor cores of any GPU (mma.sync; bf16 or
// f16 with f32 sums).
//
// Forward: a block has one tile of queries of one head and loops over the tiles of keys, with an
// online softmax (Dao et al., 2022). Backward: scores are recomputed from lse, once per tile of
// queries for dq and once per tile of keys for dk and dv, so that every sum has one owner and a
// fixed order, and no atomics are needed.
//
// While one pair of tiles is used, the next arrives (kAhead). Where shared memory does not hold
// that many, tiles take turns in one place. The arithmetic is the same, bit for bit.
//
// A warp has 16 rows of the tile.
namespace capstan::cuda::mma {

inline constexpr int kWarps = 4, kThreads = 32 * kWarps;

__device__ inline int first_row() {  // of the warp, in the tile
  return static_cast<int>(threadIdx.x) / 32 * 16;
}

// 64 rows of kDim channels in shared memory. Rows are padded by 16 bytes, so that eight rows read
// at one column are in different banks.
template <class T, int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;
  T values[kTile * kStride];

  __device__ const T* at(int row, int column) const { return values + row * kStride + column; }

  // Rows begin … begin + 63 of a head; rows from `end` on and channels from D on are zeros. Part of
  // it arrives only at finish_fills.
  __device__ void fill(Heads<T> from, int begin, int end, int head, int D, bool wide) {
    if (wide) {
      // Asynchronously, 16 bytes at a time; nothing is read for zeros.
      constexpr int kPacks = kDim / 8;
#pragma unroll
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kThreads) {
        const int row = i / kPacks, column = i % kPacks * 8;
        const bool there = begin + row < end && column < D;
        const T* const source = there ? from.at(begin + row, head) + column : from.data;
        copy_ahead<16>(shared_address(values + row * kStride + column), source, there);
      }
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kDim; i += kThreads) {
        const int row = i / kDim, column = i % kDim;
        values[row * kStride + column] =
            begin + row < end && column < D ? from.at(begin + row, head)[column] : from_float<T>(0);
      }
    }
  }
};

// Waits until all but the last kLater groups of fills have arrived, for all threads.
template <int kLater>
__device__ void finish_fills() {
  finish_copies<kLater>();
  __syncthreads();
}

// A pair of tiles, keys and values from `key` on, as a group; none if that is past `end`.
template <class T, int kDim>
__device__ void fill_keys(Tile<T, kDim>* pair, Heads<T> k, Heads<T> v, int key, int end, int head,
                          const AttentionShape& s, bool wide) {
  if (key < end) {
    pair[0].fill(k, key, s.T, head, s.D, wide);
    pair[1].fill(v, key, s.T, head, s.D, wide);
  }
  end_group();
}

// The warp's 16 rows of a tile, 16 channels from `column` on, as a left factor.
template <class T, int kDim>
__device__ void load_rows(uint32_t (&a)[4], const Tile<T, kDim>& tile, int column) {
  load_matrices(a, tile.at(first_row() + lane() % 16, column + lane() / 16 * 8));
}

// scores[j] += rows of `left` · rows of `right`, over all channels: [16, 64] for the warp.
template <class T, int kDim>
__device__ void multiply_rows(float (&scores)[kColumns][4], const Tile<T, kDim>& left,
                              const Tile<T, kDim>& right) {
#pragma unroll
  for (int c = 0; c < kDim; c += 16) {
    uint32_t a[4];
    load_rows(a, left, c);
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      uint32_t b[4];
      load_matrices(b, right.at(8 * j + lane() % 8 + lane() / 16 * 8, c + lane() / 8 % 2 * 8));
      multiply<T>(scores[j], a, b[0], b[1]);
      multiply<T>(scores[j + 1], a, b[2], b[3]);
    }
  }
}

template <class T>
__device__ uint32_t pack(float low, float high) {
  const float both[] = {low, high};
  return word_of(static_cast<const T*>(nullptr), both);
}

// sums += factors · tile, with the warp's [16, 64] factors rounded to T: [16, kDim].
template <class T, int kDim>
__device__ void multiply_columns(float (&sums)[kDim / 8][4], const float (&factors)[kColumns][4],
                                 const Tile<T, kDim>& tile) {
#pragma unroll
  for (int k = 0; k < kTile; k += 16) {
    const auto &low = factors[k / 8], &high = factors[k / 8 + 1];
    const uint32_t a[4] = {pack<T>(low[0], low[1]), pack<T>(low[2], low[3]),
                           pack<T>(high[0], high[1]), pack<T>(high[2], high[3])};
#pragma unroll
    for (int j = 0; j < kDim / 8; j += 2) {
      uint32_t b[4];
      load_matrices_flipped(b, tile.at(k + lane() % 16, 8 * j + lane() / 16 * 8));
      multiply<T>(sums[j], a, b[0], b[1]);
      multiply<T>(sums[j + 1], a, b[2], b[3]);
    }
  }
}

template <class T, int kDim>
__device__ void store_rows(Heads<T> to, int begin, int end, int head, int D,
                           const float (&sums)[kDim / 8][4], float low_factor, float high_factor) {
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = begin + row_of(i), column = column_of(j, i);
      if (row < end && column < D)
        to.at(row, head)[column] = from_float<T>(sums[j][i] * (i < 2 ? low_factor : high_factor));
    }
}

// The last tiles see the most keys, so they start first.
__device__ inline int last_tile_first() {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x);
}

// Gives one tile's place to another, for all threads: rows from `begin` on.
template <class T, int kDim>
__device__ void exchange(Tile<T, kDim>& tile, Heads<T> from, int begin, int end, int head, int D,
                         bool wide) {
  __syncthreads();
  tile.fill(from, begin, end, head, D, wide);
  end_group();
  finish_fills<0>();
}

// Tiles in shared memory: those of the block's own rows, and two pairs, or one place.
constexpr int tiles_of(bool ahead, int own) {
  return own + (ahead ? 4 : 1);
}
inline constexpr int kForwardOwn = 1, kBackwardOwn = 2;

// Calls body.operator()<T, kDim>(). Tiles take turns only where long heads need it.
template <bool kAhead, class Body>
void with_head(const Tensor& query, const Body& body) {
  with_narrow_type(query.dtype(), [&]<class T>() {
    if constexpr (kAhead)
      with_width<32, 64, 128>(query.dim(2),
                              [&]<int kDim>() { body.template operator()<T, kDim>(); });
    else
      body.template operator()<T, 128>();
  });
}

template <bool kAhead>
void query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                    const Tensor& o, const Tensor& lse, const AttentionInputs& in);
template <bool kAhead>
void key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                  const Tensor& lse, const Tensor& delta, const AttentionInputs& in);

}  // namespace capstan::cuda::mma
