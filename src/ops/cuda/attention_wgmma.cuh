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

// kEach values of global memory into shared memory, behind the thread's back; zeros instead where
// they are not `there`.
template <int kEach>
__device__ void copy_in(uint32_t to, const bf16_t* from) {
  if constexpr (kEach == 8)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}
template <int kEach>
__device__ void copy_in(uint32_t to, const bf16_t* from, bool there) {
  if constexpr (kEach == 8)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 8 : 0)
                 : "memory");
}

// Rows begin … begin + 63 of a head, by a group of which this is thread `index`; rows from `end` on
// and channels from D on are zeros. It is there after finish_groups and a barrier. kEach, 8 or 4,
// values are copied at a time: rows begin at multiples of that, and D is one.
template <int kEach, int kDim>
__device__ void fill(Tile<kDim>& to, Heads<bf16_t> from, int begin, int end, int head, int D,
                     int index) {
  constexpr int kCopies = kDim / kEach, kRows = kGroup / kCopies;  // of a row; at a time
  static_assert(kRows % 4 == 0);
  const int channel = index % kCopies * kEach, first = index / kCopies;
  const bf16_t* source = from.at(begin + first, head) + channel;
  const uint32_t address = shared_address(to.at(first, channel));
  // Rows that are four apart are permuted by packs that are four, or 64 bytes, apart.
  const auto place = [&](int step) {
    return (address ^ static_cast<uint32_t>(step % 8 * 16)) + static_cast<uint32_t>(step * 128);
  };
  if (begin + kTile <= end && D == kDim) {
#pragma unroll
    for (int step = 0; step < kTile; step += kRows, source += kRows * from.stride_t)
      copy_in<kEach>(place(step), source);
  } else {
#pragma unroll
    for (int step = 0; step < kTile; step += kRows, source += kRows * from.stride_t) {
      const bool there = begin + first + step < end && channel < D;
      copy_in<kEach>(place(step), there ? source : from.data, there);
    }
  }
}

// What gradients are turned back by: nothing where there are no positions.
struct TurnedBy {
  const float *cosines, *sines;
  const int32_t* positions;

  explicit TurnedBy(const RopeAngles& a)
      : cosines(data<float>(a.cos_PD)),
        sines(data<float>(a.sin_PD)),
        positions(data<int32_t>(a.positions_T)) {}
};
// The gradients of a thread's two rows, of heads as wide as the tile: it has both channels of every
// pair that rope turns.
template <int kDim>
__device__ void turn_back(float (&sums)[kDim / 8][4], const TurnedBy& by, const int (&rows)[2],
                          int end) {
  if (by.positions == nullptr) return;
  constexpr int kHalf = kDim / 16;  // fragments of half a head
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (rows[r] >= end) continue;
    const int64_t at = int64_t{by.positions[rows[r]]} * (kDim / 2) + column_of(0, 0);
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const auto cosine = *reinterpret_cast<const float2*>(by.cosines + at + 8 * j);
      const auto sine = *reinterpret_cast<const float2*>(by.sines + at + 8 * j);
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        const float c = i % 2 == 0 ? cosine.x : cosine.y, s = i % 2 == 0 ? sine.x : sine.y;
        const float first = sums[j][i], second = sums[j + kHalf][i];
        sums[j][i] = first * c + second * s;
        sums[j + kHalf][i] = second * c - first * s;
      }
    }
  }
}

// Waits for the four warps of a group.
__device__ inline void meet_group(int group) {
  if (group == 0)
    meet<1, kGroup>();
  else if (group == 1)
    meet<2, kGroup>();
  else
    meet<3, kGroup>();
}

// A group's 64 rows of results, through a tile that is no longer read.
template <int kEach, int kDim>
__device__ void store_rows(Heads<bf16_t> to, int begin, int end, int head, int D,
                           const float (&sums)[kDim / 8][4], float low_factor, float high_factor,
                           Tile<kDim>& through, int group) {
  meet_group(group);
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const float factor = i == 0 ? low_factor : high_factor;
      *reinterpret_cast<uint32_t*>(through.at(row_of(i), column_of(j, 0))) =
          both(sums[j][i] * factor, sums[j][i + 1] * factor);
    }
  meet_group(group);
  constexpr int kCopies = kDim / kEach;
  using Values = std::conditional_t<kEach == 8, uint4, uint2>;
  const int index = static_cast<int>(threadIdx.x) % kGroup, rows = min(kTile, end - begin);
  const int channel = index % kCopies * kEach;
  for (int row = index / kCopies; row < rows; row += kGroup / kCopies)
    if (channel < D)
      *reinterpret_cast<Values*>(to.at(begin + row, head) + channel) =
          *reinterpret_cast<const Values*>(through.at(row, channel));
}

// Which tile, or tiles of as many groups, of which head a block has. Blocks begin in the order of
// their numbers: tiles with the most work come first, so that the last to end are short. Of few
// blocks, those of all heads go together; of many, a head's, whose keys are then still in the
// cache.
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
inline Order order_of(const Queue& q, int64_t tokens, int64_t heads, int groups = 1) {
  const int64_t tiles = blocks_for(tokens, kTile * groups);
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

// A block's walk over the keys that its queries see. Two tiles of keys and two of values
// are in shared memory: those of one step are filled while those of the step before are read.
template <int kEach, int kDim>
struct KeyWalk {
  Tile<kDim>* stages;  // pairs of keys and values
  Heads<bf16_t> k, v;
  int head, first, end, T, D;

  __device__ Tile<kDim>& keys(int step) const { return stages[step % kStages * 2]; }
  __device__ Tile<kDim>& values(int step) const { return stages[step % kStages * 2 + 1]; }
  // By one group.
  __device__ void fill_keys(int step) const { fill_from(k, keys(step), step); }
  __device__ void fill_values(int step) const { fill_from(v, values(step), step); }

 private:
  __device__ void fill_from(const Heads<bf16_t>& heads, Tile<kDim>& to, int step) const {
    const int key = first + step * kTile, index = static_cast<int>(threadIdx.x) % kGroup;
    if (key < end) fill<kEach>(to, heads, key, T, head, D, index);
  }
};

// The first of a block's tiles, one for each of its groups.
template <int kGroups>
__device__ int tile_of_queries(Finder& finder, const Order& order, const Visible& visible, int T) {
  constexpr int kRows = kGroups * kTile;
  return kGroups * finder.tile(order, [&](int tile) {
    return min((tile + 1) * kRows, T) - visible.first(tile * kRows);
  });
}

// Calls body with how many values of these tensors a thread copies at a time, and the width of a
// tile that holds D channels. False where they begin at odd places, or have rows of odd lengths:
// then nothing was called.
template <class Body, class... Tensors>
bool with_copies(const Body& body, int D, const Tensors&... tensors) {
  const bool wide = packs(8, tensors...);
  if (!wide && !packs(4, tensors...)) return false;
  with_width<64, 128>(D, [&]<int kDim>() {
    if (wide)
      body.template operator()<8, kDim>();
    else
      body.template operator()<4, kDim>();
  });
  return true;
}

// The three entries of AttentionKernels.
void wgmma_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in);
void wgmma_query_gradient(Queue& q, const Tensor& dq, const Tensor& d_o, const Tensor& lse,
                          const Tensor& delta, const AttentionInputs& in);
void wgmma_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                        const Tensor& lse, const Tensor& delta, const AttentionInputs& in);

}  // namespace capstan::cuda
