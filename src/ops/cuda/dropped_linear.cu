// Products of a dropped matrix x with one that has few rows or columns. They are bound by reading
// x: each block reads a part of it once, drops what the key says on the way to shared memory, and
// multiplies it with all outputs. Sums are split over blocks, each of which has its place in the
// scratch, and added in their order.
#include "ops/cuda/dropped_linear.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/rng.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256, kTile = static_cast<int>(kDroppedTile);
constexpr int kMost = static_cast<int>(kMostDroppedOutputs);
// Rows in shared memory are 16 bytes longer than their values, so that eight rows read at one
// column lie in different banks.
constexpr int kStride = kTile + 8, kWideStride = kMost + 8;
constexpr int kPacksOfX = kTile * kTile / 8 / kThreads;     // of a thread, for a tile of x
constexpr int kPacksBeside = kMost * kTile / 8 / kThreads;  // … and of the other factor, at most

struct Sizes {
  int64_t T, O, I;
};

// What is dropped of eight values from `at` on in x becomes zero.
__device__ uint4 dropped(uint4 values, const Rng& rng, int64_t at, uint32_t least) {
  const auto kept = [least](uint32_t lower, uint32_t upper) {
    return (lower >= least ? 0xffffu : 0u) | (upper >= least ? 0xffff0000u : 0u);
  };
  const auto first = rng.draws(static_cast<uint64_t>(at / 4));
  const auto second = rng.draws(static_cast<uint64_t>(at / 4 + 1));
  values.x &= kept(first[0], first[1]);
  values.y &= kept(first[2], first[3]);
  values.z &= kept(second[0], second[1]);
  values.w &= kept(second[2], second[3]);
  return values;
}

// A tile of x, 64 by 64 values, on its way from memory to shared memory through registers.
struct TileOfX {
  const bf16_t* x;
  int64_t T, I;
  uint4 packs[kPacksOfX];

  __device__ static int row(int n) { return (static_cast<int>(threadIdx.x) + n * kThreads) / 8; }
  __device__ static int column() { return static_cast<int>(threadIdx.x) % 8 * 8; }

  __device__ void fetch(int64_t first_row, int64_t first_column) {
    const int64_t c = first_column + column();
#pragma unroll
    for (int n = 0; n < kPacksOfX; ++n) {
      const int64_t r = first_row + row(n);
      packs[n] = pack_at(x + r * I + c, r < T && c < I);
    }
  }
  __device__ void put(bf16_t* tile, int64_t first_row, int64_t first_column, const Rng& rng,
                      uint32_t least) const {
#pragma unroll
    for (int n = 0; n < kPacksOfX; ++n) {
      const int64_t at = (first_row + row(n)) * I + first_column + column();
      *reinterpret_cast<uint4*>(tile + row(n) * kStride + column()) =
          dropped(packs[n], rng, at, least);
    }
  }
};

// The same for `rows` by `columns` values of another matrix, columns a multiple of 8.
template <int kTileStride>
struct TileBeside {
  const bf16_t* matrix;
  int64_t stride;
  int rows, columns;
  uint4 packs[kPacksBeside];

  // Rows and columns from the limits on are zeros.
  __device__ void fetch(int64_t first_row, int64_t first_column, int64_t row_limit,
                        int64_t column_limit) {
    each([&](int n, int r, int c) {
      packs[n] = pack_at(matrix + (first_row + r) * stride + first_column + c,
                         first_row + r < row_limit && first_column + c < column_limit);
    });
  }
  __device__ void put(bf16_t* tile) const {
    each([&](int n, int r, int c) {
      *reinterpret_cast<uint4*>(tile + r * kTileStride + c) = packs[n];
    });
  }

 private:
  template <class Body>
  __device__ void each(const Body& body) const {
    const int per_row = columns / 8;
#pragma unroll
    for (int n = 0; n < kPacksBeside; ++n) {
      const int i = static_cast<int>(threadIdx.x) + n * kThreads;
      if (i < rows * per_row) body(n, i / per_row, i % per_row * 8);
    }
  }
};

// Shared memory for two tiles of each factor: one is filled while the other is multiplied.
struct alignas(16) Tiles {
  bf16_t x[2][kTile * kStride];
  bf16_t beside[2][kMost * kStride];
};
static_assert(kTile * kWideStride <= kMost * kStride);

// partial[split, t, o] = Σ_i kept x[t, i] w[o, i], over the split's `chunk` inputs. Of a block's
// results, 64 by O, a warp has 16 rows and half of the columns.
__global__ void __launch_bounds__(kThreads, 3)
    dropped_linear_kernel(float* partial, const bf16_t* x, const bf16_t* w, Sizes s, int64_t chunk,
                          uint32_t least, RngArgument key) {
  constexpr int kFragments = kMost / 16;
  __shared__ Tiles tiles;
  const Rng rng = key.read();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int O = static_cast<int>(s.O), fragments = O / 16;
  const int warp_row = warp / 2 * 16, warp_column = warp % 2 * (O / 2);
  const int64_t row = blockIdx.x * int64_t{kTile}, begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < s.I ? begin + chunk : s.I;
  TileOfX from_x{x, s.T, s.I, {}};
  TileBeside<kStride> from_w{w, s.I, O, kTile, {}};
  float sums[kFragments][4] = {};

  from_x.fetch(row, begin);
  from_w.fetch(0, begin, O, s.I);
  int side = 0;
  for (int64_t i = begin; i < end; i += kTile, side ^= 1) {
    from_x.put(tiles.x[side], row, i, rng, least);
    from_w.put(tiles.beside[side]);
    __syncthreads();
    if (i + kTile < end) {
      from_x.fetch(row, i + kTile);
      from_w.fetch(0, i + kTile, O, s.I);
    }
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
      uint32_t a[4];
      load_matrices(a, tiles.x[side] + (warp_row + lane % 16) * kStride + k + lane / 16 * 8);
#pragma unroll
      for (int j = 0; j < kFragments; j += 2) {
        if (j >= fragments) break;
        uint32_t b[4];
        const int o = warp_column + 8 * j + lane % 8 + lane / 16 * 8;
        load_matrices(b, tiles.beside[side] + o * kStride + k + lane / 8 % 2 * 8);
        multiply(sums[j], a, b[0], b[1]);
        if (j + 1 < fragments) multiply(sums[j + 1], a, b[2], b[3]);
      }
    }
  }

  for (int half = 0; half < 2; ++half) {
    const int64_t t = row + warp_row + lane / 4 + 8 * half;
    if (t >= s.T) break;
    float* const to = partial + (blockIdx.y * s.T + t) * s.O + warp_column + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kFragments; ++j)
      if (j < fragments)
        *reinterpret_cast<float2*>(to + 8 * j) =
            half == 0 ? float2{sums[j][0], sums[j][1]} : float2{sums[j][2], sums[j][3]};
  }
}

// partial[split, o, i] = Σ_t dy[t, o] kept x[t, i], over the split's `chunk` tokens. Of a block's
// results, O by 64, a warp has 16 columns and every other 16 rows.
__global__ void __launch_bounds__(kThreads, 3)
    dropped_backward_weight_kernel(float* partial, const bf16_t* dy, const bf16_t* x, Sizes s,
                                   int64_t chunk, uint32_t least, RngArgument key) {
  constexpr int kFragments = kMost / 32;
  __shared__ Tiles tiles;
  const Rng rng = key.read();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int O = static_cast<int>(s.O);
  const int warp_row = warp / 4 * 16, warp_column = warp % 4 * 16;
  const int64_t column = blockIdx.x * int64_t{kTile}, begin = blockIdx.y * chunk;
  const int64_t end = begin + chunk < s.T ? begin + chunk : s.T;
  TileOfX from_x{x, s.T, s.I, {}};
  TileBeside<kWideStride> from_dy{dy, s.O, kTile, O, {}};
  float sums[kFragments][2][4] = {};

  from_x.fetch(begin, column);
  from_dy.fetch(begin, 0, s.T, O);
  int side = 0;
  for (int64_t t = begin; t < end; t += kTile, side ^= 1) {
    from_x.put(tiles.x[side], t, column, rng, least);
    from_dy.put(tiles.beside[side]);
    __syncthreads();
    if (t + kTile < end) {
      from_x.fetch(t + kTile, column);
      from_dy.fetch(t + kTile, 0, s.T, O);
    }
#pragma unroll
    for (int k = 0; k < kTile; k += 16) {
      uint32_t b[4];
      load_matrices_flipped(
          b, tiles.x[side] + (k + lane % 16) * kStride + warp_column + lane / 16 * 8);
#pragma unroll
      for (int m = 0; m < kFragments; ++m) {
        const int o = warp_row + 32 * m;
        if (o >= O) break;
        uint32_t a[4];
        load_matrices_flipped(a, tiles.beside[side] + (k + lane % 8 + lane / 16 * 8) * kWideStride +
                                     o + lane / 8 % 2 * 8);
        multiply(sums[m][0], a, b[0], b[1]);
        multiply(sums[m][1], a, b[2], b[3]);
      }
    }
  }

#pragma unroll
  for (int m = 0; m < kFragments; ++m)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int64_t o = warp_row + 32 * m + lane / 4;
      const int64_t i = column + warp_column + 8 * j + lane % 4 * 2;
      if (warp_row + 32 * m >= O || i >= s.I) continue;
      float* const to = partial + (blockIdx.y * s.O + o) * s.I + i;
      *reinterpret_cast<float2*>(to) = float2{sums[m][j][0], sums[m][j][1]};
      *reinterpret_cast<float2*>(to + 8 * s.I) = float2{sums[m][j][2], sums[m][j][3]};
    }
}

// y = factor · Σ over the splits, or y += the same; n values, a multiple of 4.
template <bool kAdd, class Y>
__global__ void add_up_kernel(Y* y, const float* partial, int splits, float factor, int64_t n) {
  const int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * 4;
  if (i >= n) return;
  float sums[4] = {}, v[4];
  for (int split = 0; split < splits; ++split) {
    load(v, partial + split * n + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) sums[k] += v[k];
  }
  if (kAdd) load(v, y + i);
#pragma unroll
  for (int k = 0; k < 4; ++k) sums[k] = kAdd ? v[k] + factor * sums[k] : factor * sums[k];
  store(y + i, sums);
}

template <bool kAdd>
void add_up(Queue& q, const Tensor& y, const Tensor& partial, int64_t splits, float factor) {
  with_type(y.dtype(), [&]<class Y>() {
    const auto blocks = static_cast<unsigned>(blocks_for(y.numel(), 4 * kThreads));
    add_up_kernel<kAdd><<<blocks, kThreads, 0, stream_of(q)>>>(
        data<Y>(y), data<float>(partial), static_cast<int>(splits), factor, y.numel());
  });
}

// How `tiles` tiles of results with sums over `terms` are given to blocks.
struct Split {
  int64_t parts, chunk;  // terms of a part, in whole tiles
  dim3 grid;

  Split(int64_t tiles, int64_t terms) {
    const int64_t steps = blocks_for(terms, kTile);
    const int64_t each = blocks_for(steps, std::min(dropped_splits(tiles), steps));
    parts = blocks_for(steps, each);
    chunk = each * kTile;
    grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(parts));
  }
};

}  // namespace

void dropped_linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, float factor,
                    float p, const RandomKey& key, const Tensor& scratch) {
  const Sizes s{x.dim(0), w.dim(0), x.dim(1)};
  if (s.T == 0) return;
  const Split split(blocks_for(s.T, kTile), s.I);
  dropped_linear_kernel<<<split.grid, kThreads, 0, stream_of(q)>>>(
      data<float>(scratch), data<bf16_t>(x), data<bf16_t>(w), s, split.chunk, Rng::least_word(p),
      RngArgument(key));
  launched("dropped_linear");
  add_up<false>(q, y, scratch, split.parts, factor / (1.0f - p));
  launched("dropped_linear");
}

void dropped_linear_backward_weight(Queue& q, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                    float p, const RandomKey& key, const Tensor& scratch) {
  const Sizes s{x.dim(0), dw.dim(0), x.dim(1)};
  if (s.T == 0) return;
  const Split split(blocks_for(s.I, kTile), s.T);
  dropped_backward_weight_kernel<<<split.grid, kThreads, 0, stream_of(q)>>>(
      data<float>(scratch), data<bf16_t>(dy), data<bf16_t>(x), s, split.chunk, Rng::least_word(p),
      RngArgument(key));
  launched("dropped_linear_backward_weight");
  add_up<true>(q, dw, scratch, split.parts, 1.0f / (1.0f - p));
  launched("dropped_linear_backward_weight");
}

}  // namespace capstan::cuda
