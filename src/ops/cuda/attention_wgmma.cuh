#pragma once

#include "ops/cuda/attention_rows.cuh"
#include "ops/cuda/wgmma.cuh"

// What the kernels of attention by wgmma share: tiles of 64 queries by 64 keys, made by groups of
// four warps. Tiles are filled one step ahead of the products that read them.
namespace capstan::cuda {

inline constexpr int kStages = 2;  // steps of a walk whose tiles are in shared memory

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Shared memory of a block; its tiles begin at a multiple of 1024.
template <int kDim>
constexpr int shared_bytes(int tiles) {
  return tiles * static_cast<int>(sizeof(Tile<kDim>)) + 1024;
}
template <int kDim>
__device__ Tile<kDim>* tiles_of(unsigned char* memory) {
  const uint32_t address = shared_address(memory);
  return reinterpret_cast<Tile<kDim>*>(memory + ((address + 1023) / 1024 * 1024 - address));
}

// Rows begin … begin + 63 of a head, by a group of which this is thread `index`; rows from `end` on
// and channels from D on are zeros. It is there after finish_groups and a barrier.
template <int kDim>
__device__ void fill(Tile<kDim>& to, Heads<bf16_t> from, int begin, int end, int head, int D,
                     bool wide, int index) {
  constexpr int kPacks = Tile<kDim>::kPacks, kRows = kGroup / kPacks;
  static_assert(kRows % 8 == 0, "all rows of a thread are permuted alike");
  if (wide) {
    const int pack = index % kPacks, first = index / kPacks;
    const bf16_t* source = from.at(begin + first, head) + 8 * pack;
    uint32_t address = shared_address(to.values + to.offset(first, pack));
#pragma unroll
    for (int step = 0; step < kTile; step += kRows) {
      const bool there = begin + first + step < end && 8 * pack < D;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                   "l"(there ? source : from.data), "r"(there ? 16 : 0)
                   : "memory");
      source += kRows * from.stride_t;
      address += kRows * 128;
    }
  } else {
    for (int i = index; i < kTile * kDim; i += kGroup) {
      const int row = i / kDim, channel = i % kDim;
      *to.at(row, channel) = begin + row < end && channel < D ? from.at(begin + row, head)[channel]
                                                              : from_float<bf16_t>(0);
    }
  }
}

// A group's 64 rows of results, through a tile that is no longer read. Barrier 1 is the group's.
template <int kDim>
__device__ void store_rows(Heads<bf16_t> to, int begin, int end, int head, int D, bool wide,
                           const float (&sums)[kDim / 8][4], float low_factor, float high_factor,
                           Tile<kDim>& through) {
  meet<1, kGroup>();
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float factor = i == 0 ? low_factor : high_factor;
      *reinterpret_cast<uint32_t*>(through.at(row_of(i), column_of(j, 0))) =
          both(sums[j][i] * factor, sums[j][i + 1] * factor);
    }
  meet<1, kGroup>();
  const int index = static_cast<int>(threadIdx.x) % kGroup, rows = min(kTile, end - begin);
  if (wide) {
    constexpr int kPacks = Tile<kDim>::kPacks;
    const int pack = index % kPacks;
    for (int row = index / kPacks; row < rows; row += kGroup / kPacks)
      if (8 * pack < D)
        *reinterpret_cast<uint4*>(to.at(begin + row, head) + 8 * pack) =
            *reinterpret_cast<const uint4*>(through.at(row, 8 * pack));
  } else {
    for (int i = index; i < rows * kDim; i += kGroup)
      if (i % kDim < D) to.at(begin + i / kDim, head)[i % kDim] = *through.at(i / kDim, i % kDim);
  }
}

// Which tile of which head a block has. Blocks begin in the order of their numbers: tiles with the
// most work come first, so that the last to end are short. Of few blocks, those of all heads go
// together; of many, a head's, whose keys are then still in the cache.
struct Order {
  int tiles, heads;
  bool heads_together;

  __device__ int head() const {
    const int block = static_cast<int>(blockIdx.x);
    return heads_together ? block % heads : block / tiles;
  }
  __device__ int rank() const {
    const int block = static_cast<int>(blockIdx.x);
    return heads_together ? block / heads : block % tiles;
  }
};
inline Order order_of(const Queue& q, int64_t tokens, int64_t heads) {
  const int64_t tiles = blocks_for(tokens, kTile);
  return {static_cast<int>(tiles), static_cast<int>(heads),
          tiles * heads <= 4 * q.cuda().multiprocessors()};
}

// Room to find a block's tile.
struct Finder {
  static constexpr int kMost = 256;
  int starts[kMost];
  int work[3 * kGroup];
  int chosen;

  // Lets `visible` search the documents' starts here, where they are read faster.
  __device__ void fetch(Visible& visible) {
    if (visible.documents >= kMost) return;
    for (int i = static_cast<int>(threadIdx.x); i <= visible.documents;
         i += static_cast<int>(blockDim.x))
      starts[i] = visible.starts[i];
    visible.starts = starts;
    __syncthreads();
  }
  // The tile that has more work than all but `rank` others; the last tile first if there are more
  // tiles than threads.
  template <class Work>
  __device__ int tile(const Order& order, const Work& work_of) {
    const int index = static_cast<int>(threadIdx.x), rank = order.rank();
    if (order.tiles > min(3 * kGroup, static_cast<int>(blockDim.x))) return order.tiles - 1 - rank;
    if (index < order.tiles) work[index] = work_of(index);
    __syncthreads();
    if (index < order.tiles) {
      int before = 0;
      for (int i = 0; i < order.tiles; ++i)
        before += work[i] > work[index] || (work[i] == work[index] && i > index);
      if (before == rank) chosen = index;
    }
    __syncthreads();
    return chosen;
  }
};

// A group's walk over the keys that its tile of queries sees.
template <int kDim>
struct KeyWalk {
  Tile<kDim>* stages;  // pairs of keys and values
  Heads<bf16_t> k, v;
  int head, first, end, T, D;
  bool wide;

  __device__ Tile<kDim>& keys(int step) const { return stages[step % kStages * 2]; }
  __device__ Tile<kDim>& values(int step) const { return stages[step % kStages * 2 + 1]; }
  __device__ void fill_step(int step) const {
    const int key = first + step * kTile, index = static_cast<int>(threadIdx.x);
    if (key < end) {
      fill(keys(step), k, key, T, head, D, wide, index);
      fill(values(step), v, key, T, head, D, wide, index);
    }
    end_group();
  }
  // The products of the step before are done, the tiles of this one are there, and those of the
  // next are on their way.
  __device__ void advance(int step) const {
    finish_products<0>();
    finish_groups<0>();
    __syncthreads();
    fill_step(step + 1);
  }
};

__device__ inline int tile_of_queries(Finder& finder, const Order& order, const Visible& visible,
                                      int T) {
  return finder.tile(
      order, [&](int tile) { return min((tile + 1) * kTile, T) - visible.first(tile * kTile); });
}

// The three entries of AttentionKernels.
void wgmma_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in);
void wgmma_query_gradient(Queue& q, const Tensor& dq, const Tensor& d_o, const Tensor& lse,
                          const Tensor& delta, const AttentionInputs& in);
void wgmma_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                        const Tensor& lse, const Tensor& delta, const AttentionInputs& in);

}  // namespace capstan::cuda
