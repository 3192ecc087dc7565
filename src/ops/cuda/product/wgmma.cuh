#pragma once

#include "ops/cuda/product/async_copy.cuh"
#include "ops/cuda/product/tile.cuh"

// Tiles of 64 rows in shared memory, and their products on Hopper's tensor cores (wgmma): the left
// factor has 64 rows, shared by four warps, 16 each. bf16 factors, f32 sums.
//
// Fragments of results and of left factors in registers: lane l of a warp has rows l / 4 and l / 4
// + 8 of the warp's 16, and columns 2 (l % 4), + 1 of each 8 columns.
//
// A program for several kinds of GPUs is compiled once for each: kernels have their code #ifdef
// CAPSTAN_WGMMA_CODE, and Context::wgmma() says whether they may be launched.
#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CAPSTAN_WGMMA_CODE
#endif

namespace capstan::cuda {

inline constexpr int kGroup = 128;         // threads that multiply together
inline constexpr int kPanel = kTile * 64;  // values in a panel: 64 channels of all rows
inline constexpr int kPanelBytes = kPanel * 2;

// 64 rows of kDim channels, in panels of 64 channels: a row of a panel is 128 bytes, whose eight
// packs of 16 bytes are permuted by the row ("128-byte swizzle"), so that a column of packs covers
// all banks.
template <int kDim>
struct alignas(1024) Tile {
  static_assert(kDim % 64 == 0);
  static constexpr int kPacks = kDim / 8;
  bf16_t values[kTile * kDim];

  static __device__ int offset(int row, int pack) {
    return pack / 8 * kPanel + row * 64 + ((pack ^ row) & 7) * 8;
  }
  __device__ bf16_t* at(int row, int channel) {
    return values + offset(row, channel / 8) + channel % 8;
  }
};

// Makes the thread's stores and copies visible to the tensor cores and the copy engine. A barrier
// must follow.
__device__ inline void publish() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// A named barrier of kCount threads; barrier 0 is __syncthreads'.
template <int kBarrier, int kCount>
__device__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kCount) : "memory");
}

// ---- products ------------------------------------------------------------------------------

// A factor in shared memory, as a descriptor for the tensor cores. `+` moves within a tile by one
// addition to the lower word; the 18-bit address cannot overflow its field.
struct SharedFactor {
  uint32_t low;

  __device__ SharedFactor operator+(int bytes) const {
    return {low + static_cast<uint32_t>(bytes >> 4)};
  }
  __device__ uint64_t bits() const { return uint64_t{1024 >> 4 | 1u << 30} << 32 | low; }
};
// Rows of 16 channels: a left factor, or a right one that is used transposed.
__device__ inline SharedFactor rows_factor(uint32_t address) {
  return {(address & 0x3ffff) >> 4 | 1u << 16};
}
// 16 rows of all channels: a right factor.
__device__ inline SharedFactor columns_factor(uint32_t address) {
  return {(address & 0x3ffff) >> 4 | uint32_t{kPanelBytes >> 4} << 16};
}

// Before the first product after its registers were written.
__device__ inline void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void end_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kLater>
__device__ void finish_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLater) : "memory");
}

// After the wait for the products that computed d, and before it is used: the compiler does not
// know that the wait is for these registers.
template <int kFragments>
__device__ void settled(float (&d)[kFragments][4]) {
#pragma unroll
  for (auto& fragment : d)
    asm volatile(""
                 : "+f"(fragment[0]), "+f"(fragment[1]), "+f"(fragment[2]),
                   "+f"(fragment[3])::"memory");
}

#define CAPSTAN_FRAGMENT(d, j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define CAPSTAN_FRAGMENTS_8(d, j)                                                         \
  CAPSTAN_FRAGMENT(d, j), CAPSTAN_FRAGMENT(d, j + 1), CAPSTAN_FRAGMENT(d, j + 2),         \
      CAPSTAN_FRAGMENT(d, j + 3), CAPSTAN_FRAGMENT(d, j + 4), CAPSTAN_FRAGMENT(d, j + 5), \
      CAPSTAN_FRAGMENT(d, j + 6), CAPSTAN_FRAGMENT(d, j + 7)
#define CAPSTAN_NAMES_32                                                                       \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define CAPSTAN_NAMES_64                                                                    \
  CAPSTAN_NAMES_32                                                                          \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, " \
  "%49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define CAPSTAN_NAMES_128                                                                   \
  CAPSTAN_NAMES_64                                                                          \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, " \
  "%81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, "   \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "      \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "    \
  "%126, %127"

// d = a b, or d += a b: 64 x 64 sums over 16.
__device__ inline void multiply(float (&d)[8][4], SharedFactor a, SharedFactor b, bool add) {
  asm volatile(
      "{ .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" CAPSTAN_NAMES_32
      "}, %32, %33, p, 1, 1, 0, 0; }"
      : CAPSTAN_FRAGMENTS_8(d, 0)
      : "l"(a.bits()), "l"(b.bits()), "r"(int{add}));
}
// The same with the left factor in registers.
__device__ inline void multiply(float (&d)[8][4], const uint32_t (&a)[4], SharedFactor b,
                                bool add) {
  asm volatile(
      "{ .reg .pred p;\n setp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" CAPSTAN_NAMES_32
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
      : CAPSTAN_FRAGMENTS_8(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "r"(int{add}));
}
// d += a b for a right factor of 16 rows and 64 or 128 columns.
__device__ inline void multiply_columns(float (&d)[8][4], const uint32_t (&a)[4], SharedFactor b) {
  asm volatile(
      "{ .reg .pred p;\n setp.eq.u32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" CAPSTAN_NAMES_32
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
      : CAPSTAN_FRAGMENTS_8(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()));
}
__device__ inline void multiply_columns(float (&d)[16][4], const uint32_t (&a)[4], SharedFactor b) {
  asm volatile(
      "{ .reg .pred p;\n setp.eq.u32 p, 0, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" CAPSTAN_NAMES_64
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
      : CAPSTAN_FRAGMENTS_8(d, 0), CAPSTAN_FRAGMENTS_8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()));
}

// d = a b, or d += a b, in the first kWidth columns, 128 or 256: 64 rows of sums over 16. b comes
// from rows_factor if kTransposed, otherwise from columns_factor.
template <int kWidth, bool kTransposed>
__device__ void multiply_wide(float (&d)[32][4], SharedFactor a, SharedFactor b, bool add) {
  static_assert(kWidth == 128 || kWidth == 256);
  if constexpr (kWidth == 128)
    asm volatile(
        "{ .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" CAPSTAN_NAMES_64
        "}, %64, %65, p, 1, 1, 0, %67; }"
        : CAPSTAN_FRAGMENTS_8(d, 0), CAPSTAN_FRAGMENTS_8(d, 8)
        : "l"(a.bits()), "l"(b.bits()), "r"(int{add}), "n"(int{!kTransposed}));
  else
    asm volatile(
        "{ .reg .pred p;\n setp.ne.b32 p, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" CAPSTAN_NAMES_128
        "}, %128, %129, p, 1, 1, 0, %131; }"
        : CAPSTAN_FRAGMENTS_8(d, 0), CAPSTAN_FRAGMENTS_8(d, 8), CAPSTAN_FRAGMENTS_8(d, 16),
          CAPSTAN_FRAGMENTS_8(d, 24)
        : "l"(a.bits()), "l"(b.bits()), "r"(int{add}), "n"(int{!kTransposed}));
}

#undef CAPSTAN_FRAGMENT
#undef CAPSTAN_FRAGMENTS_8
#undef CAPSTAN_NAMES_32
#undef CAPSTAN_NAMES_64
#undef CAPSTAN_NAMES_128

// scores = left rightᵀ, over all channels: [64, 64].
template <int kDim>
__device__ void multiply_rows(float (&scores)[kColumns][4], const Tile<kDim>& left,
                              const Tile<kDim>& right) {
  const SharedFactor a = rows_factor(shared_address(left.values));
  const SharedFactor b = rows_factor(shared_address(right.values));
#pragma unroll
  for (int c = 0; c < kDim; c += 16) {
    const int at = c / 64 * kPanelBytes + c % 64 * 2;
    multiply(scores, a + at, b + at, c > 0);
  }
}

// A matrix of 64 x 64 scores as left factors of 16 columns each, rounded to bf16.
using Factors = uint32_t[kTile / 16][4];
__device__ inline uint32_t both(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline void to_factors(Factors& to, const float (&from)[kColumns][4]) {
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    const auto &low = from[2 * k], &high = from[2 * k + 1];
    to[k][0] = both(low[0], low[1]);
    to[k][1] = both(low[2], low[3]);
    to[k][2] = both(high[0], high[1]);
    to[k][3] = both(high[2], high[3]);
  }
}

// sums += factors right: [64, kDim].
template <int kDim>
__device__ void multiply_columns(float (&sums)[kDim / 8][4], const Factors& factors,
                                 const Tile<kDim>& right) {
  const SharedFactor b = columns_factor(shared_address(right.values));
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) multiply_columns(sums, factors[k], b + k * 16 * 128);
}

}  // namespace capstan::cuda
