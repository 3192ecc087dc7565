#pragma once

#include <type_traits>

#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/product/async_copy.cuh"

// Attention in f32, in tiles of shared memory: heads of at most 128 channels.
//
// As on tensor cores (attention_tiles.cu): the forward pass uses an online softmax; the backward
// pass recomputes the scores, once per tile of queries for dq and once per tile of keys for dk and
// dv, so that every sum has one owner and a fixed order.
//
// A tile's kRows rows are combined with 64 columns at a time. Threads form kDown rows of 16: thread
// (y, x) has the scores of rows y + kDown i and columns x + 16 j, and for each product with a row
// of kDim channels kDim / 16 of them. Scores change layout through shared memory, within a half
// warp. While one tile is used, the next is loaded.
namespace capstan::cuda::f32 {

constexpr int kColumns = 64, kAcross = 16, kEach = kColumns / kAcross;

// Rows are padded by 16 bytes: adjacent rows begin in different banks.
constexpr int stride_of(int values) {
  return values + 4;
}
constexpr int kFactorStride = stride_of(kColumns);

template <int kDim_, int kThreads_, int kHigh_>
struct Tiling {
  static constexpr int kDim = kDim_, kThreads = kThreads_;
  static constexpr int kHigh = kHigh_;  // rows per thread
  static constexpr int kDown = kThreads / kAcross, kRows = kDown * kHigh;
  static constexpr int kStride = stride_of(kDim);
  static constexpr int kChannels = kDim / kAcross;      // per thread
  static constexpr int kPack = kDim % 64 == 0 ? 4 : 2;  // of them, contiguous

  // Bytes of tiles of kRows rows and of kColumns rows, and of a tile of factors.
  static constexpr int bytes(int row_tiles, int column_tiles) {
    return 4 * (row_tiles * kRows * kStride + column_tiles * kColumns * kStride +
                kRows * kFactorStride);
  }
  __device__ static int x() { return static_cast<int>(threadIdx.x) % kAcross; }
  __device__ static int row(int i) { return static_cast<int>(threadIdx.x) / kAcross + kDown * i; }
  __device__ static int column(int j) { return x() + kAcross * j; }
  __device__ static int channel(int c) {
    return c / kPack * kAcross * kPack + x() * kPack + c % kPack;
  }
};

// Two or three blocks of 64 queries share an SM, or one of 128 has it.
template <int kDim>
using ForwardTiling = std::conditional_t<kDim <= 96, Tiling<kDim, 128, 8>, Tiling<kDim, 256, 8>>;
template <int kDim>
inline constexpr int kForwardBytes = ForwardTiling<kDim>::bytes(1, 2);
// 64 rows: shared memory holds two blocks of short heads, or one of long ones.
template <int kDim>
using BackwardTiling = std::conditional_t<kDim <= 64, Tiling<kDim, 128, 8>, Tiling<kDim, 256, 4>>;
template <int kDim>
inline constexpr int kBackwardBytes = BackwardTiling<kDim>::bytes(2, 2);

// Rows begin … begin + kRows - 1 of a head; rows from `end` on and channels from D on are zeros.
template <class S, int kRows>
__device__ void fill(float* tile, const Heads<float>& from, int begin, int end, int head, int D,
                     bool wide) {
  if (wide) {
    constexpr int kPacks = S::kDim / 4;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks; i += S::kThreads) {
      const int row = i / kPacks, channel = i % kPacks * 4;
      const bool there = begin + row < end && channel < D;
      const float* const source = there ? from.at(begin + row, head) + channel : from.data;
      copy_ahead<16>(shared_address(tile + row * S::kStride + channel), source, there);
    }
  } else {
    for (int i = static_cast<int>(threadIdx.x); i < kRows * S::kDim; i += S::kThreads) {
      const int row = i / S::kDim, channel = i % S::kDim;
      tile[row * S::kStride + channel] =
          begin + row < end && channel < D ? from.at(begin + row, head)[channel] : 0.0f;
    }
  }
}
// Waits until all but the last kLater groups of fills have arrived, for all threads.
template <int kLater>
__device__ void finish_fills() {
  finish_copies<kLater>();
  __syncthreads();
}

// scores[i][j] = row i of `left` · row j of `right`.
template <class S>
__device__ void multiply_rows(float (&scores)[S::kHigh][kEach], const float* left,
                              const float* right) {
#pragma unroll
  for (int i = 0; i < S::kHigh; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j) scores[i][j] = 0;
#pragma unroll 4
  for (int c = 0; c < S::kDim; c += 4) {
    float4 b[kEach];
#pragma unroll
    for (int j = 0; j < kEach; ++j)
      b[j] = *reinterpret_cast<const float4*>(right + S::column(j) * S::kStride + c);
#pragma unroll
    for (int i = 0; i < S::kHigh; ++i) {
      const float4 a = *reinterpret_cast<const float4*>(left + S::row(i) * S::kStride + c);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        float sum = scores[i][j];
        sum = fmaf(a.x, b[j].x, sum);
        sum = fmaf(a.y, b[j].y, sum);
        sum = fmaf(a.z, b[j].z, sum);
        scores[i][j] = fmaf(a.w, b[j].w, sum);
      }
    }
  }
}

template <int N>
__device__ void load_shared(float (&to)[N], const float* from) {
  const auto pack = *reinterpret_cast<const Pack<float, N>*>(from);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = pack.value[i];
}

// sums += factors · tile, [kRows, kColumns] by [kColumns, kDim]. With kGuard a factor of zero skips
// the term, so that NaN of another document does not spread.
template <bool kGuard, class S>
__device__ void multiply_columns(float (&sums)[S::kHigh][S::kChannels], const float* factors,
                                 const float* tile) {
  constexpr int kPacks = S::kChannels / S::kPack;
#pragma unroll 2
  for (int k = 0; k < kColumns; k += 4) {
    float b[4][kPacks][S::kPack];
#pragma unroll
    for (int r = 0; r < 4; ++r)
#pragma unroll
      for (int p = 0; p < kPacks; ++p)
        load_shared(b[r][p], tile + (k + r) * S::kStride + S::channel(p * S::kPack));
#pragma unroll
    for (int i = 0; i < S::kHigh; ++i) {
      float a[4];
      load_shared(a, factors + S::row(i) * kFactorStride + k);
#pragma unroll
      for (int r = 0; r < 4; ++r)
#pragma unroll
        for (int c = 0; c < S::kChannels; ++c) {
          const float value = b[r][c / S::kPack][c % S::kPack];
          sums[i][c] = fmaf(a[r], kGuard && a[r] == 0 ? 0.0f : value, sums[i][c]);
        }
    }
  }
}

// The same with the factors of all threads, exchanged through `room`.
template <class S>
__device__ void multiply_columns(float (&sums)[S::kHigh][S::kChannels],
                                 const float (&factors)[S::kHigh][kEach], float* room,
                                 const float* tile, bool guard) {
  __syncwarp();  // the buffer has been read
#pragma unroll
  for (int i = 0; i < S::kHigh; ++i)
#pragma unroll
    for (int j = 0; j < kEach; ++j) room[S::row(i) * kFactorStride + S::column(j)] = factors[i][j];
  __syncwarp();
  if (guard)
    multiply_columns<true, S>(sums, room, tile);
  else
    multiply_columns<false, S>(sums, room, tile);
}

template <class S>
__device__ void store_rows(const Heads<float>& to, int begin, int end, int head, int D,
                           const float (&sums)[S::kHigh][S::kChannels], bool wide) {
#pragma unroll
  for (int i = 0; i < S::kHigh; ++i) {
    const int row = begin + S::row(i);
    if (row >= end) continue;
#pragma unroll
    for (int c = 0; c < S::kChannels; c += S::kPack) {
      float* const at = to.at(row, head) + S::channel(c);
      Pack<float, S::kPack> pack;
#pragma unroll
      for (int k = 0; k < S::kPack; ++k) pack.value[k] = sums[i][c + k];
      if (wide) {
        if (S::channel(c) < D) *reinterpret_cast<Pack<float, S::kPack>*>(at) = pack;
      } else {
#pragma unroll
        for (int k = 0; k < S::kPack; ++k)
          if (S::channel(c + k) < D) at[k] = pack.value[k];
      }
    }
  }
}

// Over the 16 threads that share a row.
__device__ inline float row_max(float x) {
#pragma unroll
  for (int step = kAcross / 2; step > 0; step /= 2)
    x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, step));
  return x;
}
__device__ inline float row_sum(float x) {
#pragma unroll
  for (int step = kAcross / 2; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffff, x, step);
  return x;
}

}  // namespace capstan::cuda::f32

namespace capstan::cuda {

// Two entries of kF32Attention.
void f32_query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                        const Tensor& o, const Tensor& lse, const AttentionInputs& in);
void f32_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                      const Tensor& lse, const Tensor& delta, const AttentionInputs& in);

}  // namespace capstan::cuda
