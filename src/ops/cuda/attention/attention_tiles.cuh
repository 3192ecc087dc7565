#pragma once

#include "ops/cuda/attention/attention.cuh"
#include "ops/cuda/product/tma.cuh"

// How tiles of 64 rows of heads come into shared memory, for attention by wgmma: as boxes that the
// copy engine brings, or, where rows do not begin at multiples of 16 bytes, copied by threads, 8
// bytes at a time.
namespace capstan::cuda {

// A tensor [T, H, D] whose tiles are read.
template <bool kBoxes>
struct Operand;
template <>
struct Operand<true> {
  CUtensorMap map;  // of map_heads
};
template <>
struct Operand<false> {
  Heads<bf16_t> heads;
};

// Rows begin … begin + 63 of a head, by a group of which this is thread `index`; rows from T on and
// channels from D on are zeros.
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
    // Rows that are four apart are permuted by packs that are four, or 64 bytes, apart.
    const uint32_t place =
        (address ^ static_cast<uint32_t>(step % 8 * 16)) + static_cast<uint32_t>(step * 128);
    copy_ahead<8>(place, there ? source : from.data, there);
  }
}

// Tiles on their way. They come in arrivals, of any number of tiles, which are numbered from 0 and
// take turns at two barriers: one may be asked for when the last but one has been waited for, and
// all threads have met since.
template <bool kBoxes, int kDim>
struct Arrivals {
  static constexpr int kBarriers = 2;
  uint32_t barriers;  // in shared memory
  int T, D;
  int index;   // of the thread in its group
  bool leads;  // of all threads that share the barriers, the one that asks for boxes

  // By the leader, before all threads meet.
  __device__ void make() const {
    if constexpr (kBoxes)
      if (leads) {
        for (uint32_t i = 0; i < kBarriers; ++i) make_barrier(barriers + 8 * i, 1);
        publish_barriers();
      }
  }
  // An arrival of so many tiles begins, which ask() asks for, one after the other, until end().
  __device__ void begin(int arrival, int tiles) const {
    if constexpr (kBoxes)
      if (leads) arrive_expecting(barrier(arrival), tiles * static_cast<int>(sizeof(Tile<kDim>)));
  }
  // Rows row … row + 63 of a head. Threads copy where `mine`.
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
  // Waits for an arrival; for all copies that the thread has asked for, which are there when all
  // have met.
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
