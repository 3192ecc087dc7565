#pragma once

#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/product/tma.cuh"

// Loads tiles of 64 rows of heads into shared memory, for attention by wgmma: as boxes through the
// copy engine (TMA), or, if rows are not aligned to 16 bytes, copied by threads, 8 bytes at a time.
namespace capstan::cuda {

// A tensor [T, H, D] whose tiles are loaded.
template <bool kBoxes>
struct Operand;
template <>
struct Operand<true> {
  CUtensorMap map;  // from map_heads
};
template <>
struct Operand<false> {
  Heads<bf16_t> heads;
};

// Rows begin … begin + 63 of a head, copied by a group in which this is thread `index`; rows from T
// on and channels from D on are zeros.
template <int kDim>
__device__ void copy_rows(Tile<kDim>& to, const Heads<bf16_t>& from, int begin, int T, int head,
                          int D, int index) {
  constexpr int kCopies = kDim / 4, kRows = kGroup / kCopies;  // of a row; at a time
  static_assert(kRows % 4 == 0);
  const int channel = index % kCopies * 4, first = index / kCopies;
  const bf16_t* source = from.at(begin + first, head) + channel;
  const uint32_t address = shared_address(to.at(first, channel));
#pragma unroll
  for (int step = 0; step < kTile; step += kRows, source += kRows * from.stride_t) {
    const bool there = begin + first + step < T && channel < D;
    // Rows four apart are swizzled by packs that are four, or 64 bytes, apart.
    const uint32_t place =
        (address ^ static_cast<uint32_t>(step % 8 * 16)) + static_cast<uint32_t>(step * 128);
    copy_ahead<8>(place, there ? source : from.data, there);
  }
}

// Tiles in flight. They come in batches of any number of tiles, numbered from 0, which alternate
// between two barriers: one may be requested after the last but one has been waited for, and after
// a barrier of all threads.
template <bool kBoxes, int kDim>
struct Arrivals {
  static constexpr int kBarriers = 2;
  uint32_t barriers;  // in shared memory
  int T, D;
  int index;   // of the thread in its group
  bool leads;  // the one thread, of all that share the barriers, that requests boxes

  // Called by the leader, before a barrier of all threads.
  __device__ void make() const {
    if constexpr (kBoxes)
      if (leads) {
        for (uint32_t i = 0; i < kBarriers; ++i) make_barrier(barriers + 8 * i, 1);
        publish_barriers();
      }
  }
  // Starts a batch of this many tiles; ask() requests them one after the other, until end().
  __device__ void begin(int arrival, int tiles) const {
    if constexpr (kBoxes)
      if (leads) arrive_expecting(barrier(arrival), tiles * static_cast<int>(sizeof(Tile<kDim>)));
  }
  // Rows row … row + 63 of a head. Threads copy if `mine`.
  __device__ void ask(int arrival, Tile<kDim>& to, const Operand<kBoxes>& from, int row, int head,
                      bool mine = true) const {
    if constexpr (kBoxes) {
      if (leads) {
#pragma unroll
        for (int c = 0; c < kDim; c += 64)
          load_box(shared_address(to.values) + static_cast<uint32_t>(c / 64 * kPanelBytes),
                   &from.map, c, head, row, barrier(arrival));
      }
    } else {
      if (mine) copy_rows(to, from.heads, row, T, head, D, index);
    }
  }
  __device__ void end() const {
    if constexpr (!kBoxes) end_group();
  }
  // Waits for a batch, and for all copies that this thread requested; all are there after a
  // barrier.
  __device__ void wait(int arrival) const {
    if constexpr (kBoxes) {
      wait_for_phase(barrier(arrival), static_cast<uint32_t>(arrival / kBarriers % 2));
    } else {
      finish_copies<0>();
      publish();
    }
  }

 private:
  __device__ uint32_t barrier(int arrival) const {
    return barriers + static_cast<uint32_t>(arrival % kBarriers * 8);
  }
};

}  // namespace capstan::cuda
