#include "ops/cuda/product/fp8.h"

#include <cuda_fp8.h>

#include "ops/cuda/device.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

// ---- the largest magnitude -----------------------------------------------------------------

// Rows of `width` values, N at a time; as one row if they are dense. The bits of magnitudes are
// ordered like the magnitudes, and NaN's are the largest.
template <int N, bool kDense, class T>
__global__ void __launch_bounds__(kThreads)
    amax_kernel(uint32_t* amax, const T* m, int64_t stride, int64_t rows, int64_t width) {
  constexpr int kAtOnce = 4;
  const int64_t per_row = width / N, count = rows * per_row, step = gridDim.x * int64_t{kThreads};
  uint32_t top = 0;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < count; i += kAtOnce * step) {
    float v[kAtOnce][N] = {};
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t at = i + u * step, row = kDense ? 0 : at / per_row;
      if (at < count) load(v[u], m + row * stride + (at - row * per_row) * N);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
      for (int k = 0; k < N; ++k) top = max(top, __float_as_uint(v[u][k]) & 0x7fffffffu);
  }
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2)
    top = max(top, __shfl_xor_sync(0xffffffff, top, lanes));
  __shared__ uint32_t room[kThreads / 32];
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = top;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int i = 1; i < kThreads / 32; ++i) top = max(top, room[i]);
  atomicMax(amax, top);
}

template <class T>
void amax_of(Queue& q, float* amax, const Tensor& m) {
  const bool dense = m.contiguous(), wide = packs(8, m);
  const int64_t rows = dense ? 1 : m.dim(0), width = dense ? m.numel() : m.dim(1);
  const auto kernel = dense ? (wide ? amax_kernel<8, true, T> : amax_kernel<1, true, T>)
                            : (wide ? amax_kernel<8, false, T> : amax_kernel<1, false, T>);
  // As many blocks as run at once: each ends with an atomic on the same word.
  const auto most = static_cast<unsigned>(q.cuda().multiprocessors() * (2048 / kThreads));
  const unsigned blocks = std::min(grid_for(m.numel() / (wide ? 8 : 1), kThreads), most);
  kernel<<<blocks, kThreads, 0, stream_of(q)>>>(reinterpret_cast<uint32_t*>(amax), data<T>(m),
                                                m.stride(0), rows, width);
}

// ---- conversion ----------------------------------------------------------------------------

// A block converts a tile; each of its threads converts four rows of eight values.
constexpr int kTileRows = 128, kTileColumns = 64;
constexpr int kGroups = kTileColumns / 8, kQuads = kTileRows / 4;
static_assert(kGroups * kQuads == kThreads);

struct Conversion {
  const void* from;
  int64_t from_stride, rows, columns;
  uint8_t* plain;
  uint8_t* rotated;
  int64_t turned_stride, turned_rows;
  const float* amax;
  float* inverse;
};

template <bool kWide, class T>
__device__ void load_eight(float (&v)[8], const T* from) {
  if constexpr (kWide)
    load(v, from);
  else
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = to_float(from[i]);
}

template <Fp8 kFormat>
__device__ uint32_t four_codes(const float* v, float scale) {
  constexpr auto kInterpretation = kFormat == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2;
  const auto two = [scale](float low, float high) {
    return uint32_t{__nv_cvt_float2_to_fp8x2(make_float2(low * scale, high * scale), __NV_SATFINITE,
                                             kInterpretation)};
  };
  return two(v[0], v[1]) | two(v[2], v[3]) << 16;
}

// Four rows of four bytes become four columns.
__device__ void transpose_bytes(uint32_t (&to)[4], uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const uint32_t ab_low = __byte_perm(a, b, 0x5140), cd_low = __byte_perm(c, d, 0x5140);
  const uint32_t ab_high = __byte_perm(a, b, 0x7362), cd_high = __byte_perm(c, d, 0x7362);
  to[0] = __byte_perm(ab_low, cd_low, 0x5410);
  to[1] = __byte_perm(ab_low, cd_low, 0x7632);
  to[2] = __byte_perm(ab_high, cd_high, 0x5410);
  to[3] = __byte_perm(ab_high, cd_high, 0x7632);
}

template <Fp8 kFormat, bool kWide, class T>
__global__ void __launch_bounds__(kThreads) convert_kernel(const Conversion c) {
  // Four rows per word, padded by one word to avoid bank conflicts on both sides.
  __shared__ uint32_t tile[kTileColumns][kQuads + 1];
  const auto across = static_cast<unsigned>((c.columns + kTileColumns - 1) / kTileColumns);
  const int64_t row0 = int64_t{blockIdx.x / across} * kTileRows,
                column0 = int64_t{blockIdx.x % across} * kTileColumns;

  const int group = static_cast<int>(threadIdx.x) % kGroups;
  const int quad = static_cast<int>(threadIdx.x) / kGroups;
  const int64_t row = row0 + 4 * quad, column = column0 + 8 * group;
  const auto inside = [&](int r) { return column < c.columns && row + r < c.rows; };
  // All loads before the first store, since the compiler moves no load above a store.
  float v[4][8] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r)
    if (inside(r))
      load_eight<kWide>(v[r], static_cast<const T*>(c.from) + (row + r) * c.from_stride + column);
  const float scale = fp8_scale(kFormat, *c.amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) *c.inverse = 1.0f / scale;
  uint2 codes[4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (!inside(r)) continue;
    codes[r] = make_uint2(four_codes<kFormat>(v[r], scale), four_codes<kFormat>(v[r] + 4, scale));
    if (c.plain != nullptr)
      *reinterpret_cast<uint2*>(c.plain + (row + r) * c.columns + column) = codes[r];
  }
  if (c.rotated == nullptr) return;
  uint32_t low[4], high[4];
  transpose_bytes(low, codes[0].x, codes[1].x, codes[2].x, codes[3].x);
  transpose_bytes(high, codes[0].y, codes[1].y, codes[2].y, codes[3].y);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    tile[8 * group + i][quad] = low[i];
    tile[8 * group + 4 + i][quad] = high[i];
  }
  __syncthreads();
  constexpr int kPieces = kTileRows / 16;
  for (int i = static_cast<int>(threadIdx.x); i < kTileColumns * kPieces; i += kThreads) {
    const int piece = i % kPieces, turned_row = i / kPieces;
    const int64_t to_row = column0 + turned_row, to_column = row0 + 16 * piece;
    if (to_row >= c.columns || to_column >= c.turned_rows) continue;
    const uint32_t* const words = &tile[turned_row][4 * piece];
    *reinterpret_cast<uint4*>(c.rotated + to_row * c.turned_stride + to_column) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

template <Fp8 kFormat>
void launch(Queue& q, const Conversion& c, const Tensor& m) {
  const int64_t blocks = blocks_for(c.columns, kTileColumns) * blocks_for(c.rows, kTileRows);
  with_type(m.dtype(), [&]<class T>() {
    const auto kernel =
        packs(8, m) ? convert_kernel<kFormat, true, T> : convert_kernel<kFormat, false, T>;
    kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(q)>>>(c);
  });
}

}  // namespace

void find_amax(Queue& q, float* amax, const Tensor& m) {
  with_type(m.dtype(), [&]<class T>() { amax_of<T>(q, amax, m); });
  launched("find the largest magnitude");
}

void convert(Queue& q, Fp8 format, const float* amax, float* inverse, const Tensor& m,
             const Tensor& plain, const Tensor& rotated) {
  const Conversion c{m.raw(),
                     m.stride(0),
                     m.dim(0),
                     m.dim(1),
                     data<uint8_t>(plain),
                     data<uint8_t>(rotated),
                     rotated ? rotated.stride(0) : 0,
                     rotated ? rotated.dim(1) : 0,
                     amax,
                     inverse};
  if (format == Fp8::e4m3)
    launch<Fp8::e4m3>(q, c, m);
  else
    launch<Fp8::e5m2>(q, c, m);
  launched("convert to fp8");
}

}  // namespace capstan::cuda
