// dx += drop(dy w) for few outputs: bound by dx, which is read and written once. A block has 64
// tokens by 128 inputs of it, and all outputs in shared memory.
#include "ops/cuda/dropped_linear.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/rng.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256, kRows = 64, kColumns = 128;
constexpr int kMost = static_cast<int>(kMostDroppedOutputs);
// 16 bytes more than the values: eight rows read at one column lie in different banks.
constexpr int kDyStride = kMost + 8, kWStride = kColumns + 8;

struct Place {
  int64_t T, I;
  int O;

  __device__ int64_t row() const { return blockIdx.y * int64_t{kRows}; }
  __device__ int64_t column() const { return blockIdx.x * int64_t{kColumns}; }
};

__device__ void fill_dy(bf16_t* tile, const bf16_t* dy, const Place& s) {
  const int per_row = s.O / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kRows * per_row; i += kThreads) {
    const int r = i / per_row, c = i % per_row * 8;
    const int64_t t = s.row() + r;
    *reinterpret_cast<uint4*>(tile + r * kDyStride + c) = pack_at(dy + t * s.O + c, t < s.T);
  }
}

// Of each 32 columns, pair j of the eight that belong to lane % 4 goes to where fragment j of the
// product has that lane's pair: so the lane's four fragments are eight neighbours.
__device__ void fill_w(bf16_t* tile, const bf16_t* w, const Place& s) {
  constexpr int kPacks = kColumns / 8;
  for (int i = static_cast<int>(threadIdx.x); i < s.O * kPacks; i += kThreads) {
    const int o = i / kPacks, pack = i % kPacks;
    const int64_t c = s.column() + 8 * pack;
    const uint4 v = pack_at(w + o * s.I + c, c < s.I);
    auto* const pairs = reinterpret_cast<uint32_t*>(tile + o * kWStride + pack / 4 * 32) + pack % 4;
    pairs[0] = v.x;
    pairs[4] = v.y;
    pairs[8] = v.z;
    pairs[12] = v.w;
  }
}

__global__ void __launch_bounds__(kThreads, 3)
    dropped_backward_data_kernel(bf16_t* dx, const bf16_t* dy, const bf16_t* w, Place s,
                                 uint32_t least, float scale, RngArgument key) {
  __shared__ alignas(16) bf16_t dy_tile[kRows * kDyStride];
  __shared__ alignas(16) bf16_t w_tile[kMost * kWStride];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp / 4 * 32, warp_column = warp % 4 * 32;

  // Where the thread's eight values of each of its rows are in dx.
  const int64_t column = s.column() + warp_column + lane % 4 * 8;
  const auto row = [&](int n) { return s.row() + warp_row + lane / 4 + 8 * n; };
  uint4 before[4];
#pragma unroll
  for (int n = 0; n < 4; ++n)
    before[n] = pack_at(dx + row(n) * s.I + column, row(n) < s.T && column < s.I);
  fill_dy(dy_tile, dy, s);
  fill_w(w_tile, w, s);
  const Rng rng = key.read();
  __syncthreads();

  float sums[2][4][4] = {};  // 16 rows, 8 columns each
  for (int k = 0; k < s.O; k += 16) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      load_matrices(a[m],
                    dy_tile + (warp_row + 16 * m + lane % 16) * kDyStride + k + lane / 16 * 8);
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      uint32_t b[4];
      load_matrices_flipped(
          b, w_tile + (k + lane % 16) * kWStride + warp_column + 8 * j + lane / 16 * 8);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiply(sums[m][j], a[m], b[0], b[1]);
        multiply(sums[m][j + 1], a[m], b[2], b[3]);
      }
    }
  }

#pragma unroll
  for (int n = 0; n < 4; ++n) {
    if (row(n) >= s.T || column >= s.I) continue;
    const int64_t at = row(n) * s.I + column;
    float v[8];
    unpack(v, before[n]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto words = rng.draws(static_cast<uint64_t>(at / 4 + half));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (words[i] >= least)
          v[4 * half + i] += scale * sums[n / 2][2 * half + i / 2][n % 2 * 2 + i % 2];
    }
    *reinterpret_cast<uint4*>(dx + at) = packed<bf16_t>(v);
  }
}

}  // namespace

void dropped_linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                  float p, const RandomKey& key) {
  const Place s{dx.dim(0), dx.dim(1), static_cast<int>(w.dim(0))};
  if (s.T == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks_for(s.I, kColumns)),
                  static_cast<unsigned>(blocks_for(s.T, kRows)));
  dropped_backward_data_kernel<<<grid, kThreads, 0, stream_of(q)>>>(
      data<bf16_t>(dx), data<bf16_t>(dy), data<bf16_t>(w), s, Rng::least_word(p), 1.0f / (1.0f - p),
      RngArgument(key));
  launched("dropped_linear_backward_data");
}

}  // namespace capstan::cuda
