#pragma once

#include "ops/cuda/attention/attention_rows.cuh"
#include "ops/cuda/attention/attention_tiles.cuh"
#include "ops/cuda/product/tensor_map.h"

// Shared by the kernels of attention by wgmma: tiles of 64 queries by 64 keys, computed by groups
// of four warps. Tiles are requested before the products that read them, most of them one step
// ahead.
namespace capstan::cuda {

inline constexpr int kSteps = 2;  // whose tiles are in shared memory

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

// The angles to rotate gradients back by: none if there are no positions.
struct RotatedBy {
  const float *cosines, *sines;
  const int32_t* positions;

  explicit RotatedBy(const RopeAngles& a)
      : cosines(data<float>(a.cos_PD)),
        sines(data<float>(a.sin_PD)),
        positions(data<int32_t>(a.positions_T)) {}
};
// The gradients of a thread's two rows, for heads as wide as the tile: it has both channels of
// every pair that rope rotates.
template <int kDim>
__device__ void rotate_back(float (&sums)[kDim / 8][4], const RotatedBy& by, const int (&rows)[2],
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

// Stores a group's 64 rows of results through a tile that is no longer read. Barrier 1 is the
// group's.
template <bool kBoxes, int kDim>
__device__ void store_rows(Heads<bf16_t> to, int begin, int end, int head, int D,
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
  constexpr int kEach = kBoxes ? 8 : 4, kCopies = kDim / kEach;
  using Values = std::conditional_t<kBoxes, uint4, uint2>;
  const int index = static_cast<int>(threadIdx.x) % kGroup, rows = min(kTile, end - begin);
  const int channel = index % kCopies * kEach;
  for (int row = index / kCopies; row < rows; row += kGroup / kCopies)
    if (channel < D)
      *reinterpret_cast<Values*>(to.at(begin + row, head) + channel) =
          *reinterpret_cast<const Values*>(through.at(row, channel));
}

// The tile and head of a block. Blocks start in the order of their numbers: tiles with the most
// work come first, so that the last to finish are short. With few blocks, those of all heads are
// adjacent; with many, those of one head, whose keys are then still in the cache.
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

// Scratch to find a block's tile.
struct Finder {
  static constexpr int kMost = 256;
  int starts[kMost];
  int work[3 * kGroup];
  int chosen;

  // Lets `visible` search the documents' starts here, where reads are faster.
  __device__ void fetch(Visible& visible) {
    if (visible.documents >= kMost) return;
    for (int i = static_cast<int>(threadIdx.x); i <= visible.documents;
         i += static_cast<int>(blockDim.x))
      starts[i] = visible.starts[i];
    visible.starts = starts;
    __syncthreads();
  }
  // The tile with the `rank`-th most work, from 0; tiles in reverse order if there are more tiles
  // than threads.
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

// A loop over the keys that a tile of queries sees, in steps of a tile.
struct KeyWalk {
  int first, end;

  __device__ int key(int step) const { return first + step * kTile; }
  __device__ bool has(int step) const { return key(step) < end; }
};

__device__ inline int tile_of_queries(Finder& finder, const Order& order, const Visible& visible,
                                      int T) {
  return finder.tile(
      order, [&](int tile) { return min((tile + 1) * kTile, T) - visible.first(tile * kTile); });
}

inline bool make_operand(Operand<true>& operand, const Tensor& t) {
  return map_heads(operand.map, t);
}
inline bool make_operand(Operand<false>& operand, const Tensor& t) {
  operand.heads = heads<bf16_t>(t);
  return true;
}

// Calls body.operator()<kBoxes, kDim>(operands) with tiles that hold D channels, of the tensors
// whose `tiles` are loaded; with boxes of more than 64 channels only if kWideBoxes. Rows of the
// others are accessed in packs. Returns false without a call if a tensor's rows are misaligned or
// of odd lengths.
template <bool kWideBoxes, size_t kCount, class Body>
bool with_operands(int D, std::initializer_list<Tensor> others, const Tensor (&tiles)[kCount],
                   const Body& body) {
  const auto in_packs = [&](int n) {
    const auto fits = [n](const Tensor& t) { return packs(n, t); };
    return std::all_of(others.begin(), others.end(), fits) &&
           std::all_of(std::begin(tiles), std::end(tiles), fits);
  };
  const auto call = [&]<bool kBoxes>() {
    Operand<kBoxes> operands[kCount];
    for (size_t i = 0; i < kCount; ++i)
      if (!make_operand(operands[i], tiles[i])) return false;
    const auto run = [&]<int kDim>() { body.template operator()<kBoxes, kDim>(operands); };
    if constexpr (kBoxes && !kWideBoxes)
      run.template operator()<64>();
    else
      with_width<64, 128>(D, run);
    return true;
  };
  return (in_packs(8) && (kWideBoxes || D <= 64) && call.template operator()<true>()) ||
         (in_packs(4) && call.template operator()<false>());
}

// The entries of AttentionKernels for heads of 65 to 128 channels, with persistent blocks
// (attention_ring.cuh). Returns false without a launch if they do not support the operands, or if
// there are too few keys for their gradients to occupy the GPU.
[[nodiscard]] bool ring_attention(Queue& q, const Tensor& o, const Tensor& lse,
                                  const AttentionInputs& in);
[[nodiscard]] bool ring_query_gradient(Queue& q, const Tensor& dq, const Tensor& delta,
                                       const Tensor& d_o, const Tensor& o, const Tensor& lse,
                                       const AttentionInputs& in);
[[nodiscard]] bool ring_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv,
                                     const Tensor& d_o, const Tensor& lse, const Tensor& delta,
                                     const AttentionInputs& in);

// The entries of AttentionKernels.
void wgmma_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in);
void wgmma_query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                          const Tensor& o, const Tensor& lse, const AttentionInputs& in);
void wgmma_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                        const Tensor& lse, const Tensor& delta, const AttentionInputs& in);

}  // namespace capstan::cuda
