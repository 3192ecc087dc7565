#pragma once

#include "ops/cuda/attention/attention_rows.cuh"
#include "ops/cuda/product/wgmma.cuh"

// delta[h, t] = Σ_d do[t, h, d] o[t, h, d] for a tile of queries, computed by the threads that need
// it.
namespace capstan::cuda {

// sum + Σ a b over packs of bf16, in order.
__device__ inline float add_products(float sum, uint32_t a, uint32_t b) {
  sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
  return fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u), sum);
}
__device__ inline float add_products(float sum, uint2 a, uint2 b) {
  return add_products(add_products(sum, a.x, b.x), a.y, b.y);
}
__device__ inline float add_products(float sum, uint4 a, uint4 b) {
  sum = add_products(sum, uint2{a.x, a.y}, uint2{b.x, b.y});
  return add_products(sum, uint2{a.z, a.w}, uint2{b.z, b.w});
}

// A thread's part of its two rows of o, loaded before the tile of do arrives: each of the four
// lanes that share a row has every fourth pack of 16 bytes, or of 8 if rows are only aligned to
// that.
template <bool kWidePacks, int kDim>
class OutputRows {
 public:
  // Rows from rows.end on and channels from D on are not read: they are zeros.
  __device__ OutputRows(const Heads<bf16_t>& o, const QueryRows& rows, int head, int D) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const bf16_t* const row = o.at(rows.rows[r], head);
      const int channels = rows.rows[r] < rows.end ? D : 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i)
        packs_[r][i] =
            channel(i) < channels ? *reinterpret_cast<const Values*>(row + channel(i)) : Values{};
    }
  }
  // For a tile of o, with zeros where there is nothing.
  __device__ explicit OutputRows(Tile<kDim>& o) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int i = 0; i < kPacks; ++i)
        packs_[r][i] = *reinterpret_cast<const Values*>(o.at(row_of(2 * r), channel(i)));
  }
  // delta of the two rows, summed in a fixed order, the same in all lanes that share them. The tile
  // has zeros where there is nothing.
  __device__ void dot(float (&delta)[2], Tile<kDim>& d_o) const {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPacks; ++i) {
        const Values pack = *reinterpret_cast<const Values*>(d_o.at(row_of(2 * r), channel(i)));
        sum = add_products(sum, packs_[r][i], pack);
      }
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      delta[r] = sum + __shfl_xor_sync(0xffffffff, sum, 2);
    }
  }

 private:
  using Values = std::conditional_t<kWidePacks, uint4, uint2>;
  static constexpr int kEach = kWidePacks ? 8 : 4, kPacks = kDim / kEach / 4;
  static_assert(kPacks % 2 == 0);
  Values packs_[2][kPacks];

  // Two of every eight packs; lanes of odd rows take them in reverse order, so that together with
  // an even row they cover all banks.
  static __device__ int channel(int i) {
    const int lane = static_cast<int>(threadIdx.x % 8);
    return (i / 2 * 8 + (lane ^ (i % 2 * 4))) * kEach;
  }
};

}  // namespace capstan::cuda
