#pragma once

#include "ops/cuda/product/tma.cuh"

// The parts of the kernel in wgmma_product.cu: how clusters of two blocks traverse a result, and
// what the threads of a block do. A block has a tile of 128 rows and 256 columns, its neighbour the
// 128 rows below. One producer thread requests tiles from the copy engine, up to kStages steps
// ahead: 64 columns of a, and half of the same of b for both blocks. Two consumer groups of four
// warps multiply, 64 rows each.
namespace capstan::cuda::product_tiles {

inline constexpr int kRows = 128, kWidth = 256;  // of a tile
inline constexpr int kStep = 64;                 // sums in a step
inline constexpr int kBand = 8;                  // pairs of tiles, one below the other
inline constexpr int kThreads = 3 * kGroup;  // the producer group, in which a single thread works
// Of 64 rows or columns, and 64 sums.
inline constexpr int kPanelsOfA = kRows / 64, kPanelsOfB = kWidth / 64;
inline constexpr int kStages = 4, kStageBytes = (kPanelsOfA + kPanelsOfB) * kPanelBytes;
inline constexpr int kResultBytes = 2 * kPanelBytes;  // per group, for the output
inline constexpr int kBarriersAt = kStages * kStageBytes + 2 * kResultBytes;
inline constexpr int kSharedBytes = 1024 + kBarriersAt + 2 * 8 * kStages;

struct Extents {
  int pairs, tiles;  // of tiles along the rows; of tiles along the columns
  int steps;
};

// Terms that are added to the tiles of some columns after all steps: low-rank products with a
// transposed right factor.
struct Terms {
  struct Term {
    CUtensorMap x, w;  // boxes like those of a and b
    int first, end;    // columns; empty if they are the same
    int steps;
  };
  static constexpr bool kAny = true;
  Term all[3];

  // The one for a tile, or null.
  __device__ const Term* at(int column) const {
    for (const Term& t : all)
      if (column >= t.first && column < t.end) return &t;
    return nullptr;
  }
  __device__ int steps_at(int column) const {
    const Term* const t = at(column);
    return t == nullptr ? 0 : t->steps;
  }
};
struct NoTerms {
  static constexpr bool kAny = false;
  __device__ int steps_at(int) const { return 0; }
};

// Addresses in shared memory; the same in both blocks.
struct Room {
  uint32_t stages;

  __device__ explicit Room(const unsigned char* memory)
      : stages((shared_address(memory) + 1023) & ~1023u) {}
  __device__ uint32_t result(int group) const {
    return stages + kStages * kStageBytes + static_cast<uint32_t>(group * kResultBytes);
  }
  __device__ uint32_t full() const { return stages + kBarriersAt; }  // barriers, one for a stage
  __device__ uint32_t empty() const { return full() + 8 * kStages; }
};

// Calls body(row, column, whole) for the first value of each tile of this block, or, if not whole,
// of the left or right half of one.
//
// Tiles go down a band of kBand pairs before they go right: concurrent tiles read the same rows and
// columns, from L2. If the last round has tiles for at most half of the clusters, they are cut in
// two, and it takes half as long.
template <class Body>
__device__ __forceinline__ void for_tiles(const Extents& e, int rank, const Body& body) {
  const int clusters = static_cast<int>(gridDim.x) / 2, all = e.pairs * e.tiles;
  const int rest = all % clusters, cut = 2 * rest <= clusters ? rest : 0;
  const int uncut = all - cut, end = all + cut;
#pragma unroll 1
  for (int i = static_cast<int>(blockIdx.x) / 2; i < end; i += clusters) {
    const bool whole = i < uncut;
    const int tile = whole ? i : uncut + (i - uncut) / 2, half = whole ? 0 : (i - uncut) % 2;
    const int first = tile / (kBand * e.tiles) * kBand, at = tile - first * e.tiles;
    const int high = min(kBand, e.pairs - first);
    body(((first + at % high) * 2 + rank) * kRows, at / high * kWidth + half * (kWidth / 2), whole);
  }
}

// The producer thread. Each block loads half of the columns of b, for both.
template <bool kTransposed, class Added>
__device__ __forceinline__ void load_tiles(const Room& room, const CUtensorMap* a,
                                           const CUtensorMap* b, const Extents& e,
                                           const Added& added, int rank) {
  static_assert(kTransposed || !Added::kAny);
  RingPlace<kStages> at;
  for_tiles(e, rank, [&](int row, int column, bool whole) {
    const int mine = rank * (whole ? kPanelsOfB / 2 : 1);  // the first panel of b
    const int bytes = (kPanelsOfA + (whole ? kPanelsOfB : kPanelsOfB / 2)) * kPanelBytes;
    const int steps = e.steps + added.steps_at(column);
    const CUtensorMap *from_a = a, *from_b = b;
    int first = column + mine * 64, sum = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step, sum += kStep) {
      if constexpr (Added::kAny)
        if (step == e.steps) {
          const auto* const term = added.at(column);
          from_a = &term->x;
          from_b = &term->w;
          first -= term->first;
          sum = 0;
        }
      const auto stage = static_cast<uint32_t>(at.stage);
      const uint32_t full = room.full() + 8 * stage;
      const uint32_t to_a = room.stages + stage * kStageBytes;
      const uint32_t to_b = to_a + static_cast<uint32_t>((kPanelsOfA + mine) * kPanelBytes);
      wait_for_phase(room.empty() + 8 * stage, at.parity ^ 1);
      arrive_expecting(full, bytes);
      load_box(to_a, from_a, sum, row, full);
#pragma unroll
      for (int i = 0; i < kPanelsOfB / 2; ++i) {
        if (i > 0 && !whole) break;
        if constexpr (kTransposed)
          load_box_in_both(to_b + i * kPanelBytes, from_b, sum, first + i * 64, full);
        else
          load_box_in_both(to_b + i * kPanelBytes, from_b, first + i * 64, sum, full);
      }
      at.next();
    }
  });
}

// Stores a group's sums as c: 64 columns at a time go to shared memory, and from there to memory
// while the next follow.
__device__ __forceinline__ void store_sums(const float (&sums)[kWidth / 8][4], const CUtensorMap* c,
                                           int row, int column, bool whole, float factor,
                                           uint32_t result, int group) {
  const int thread = static_cast<int>(threadIdx.x) % kGroup, lane = thread % 32;
  const int to_row = thread / 32 * 16 + lane % 16, to_pack = lane / 16;
  const uint32_t to = result + static_cast<uint32_t>(to_row * 128);
  const auto meet_group = [group] {
    if (group == 0)
      meet<1, kGroup>();
    else
      meet<2, kGroup>();
  };
#pragma unroll
  for (int block = 0; block < kWidth / 64; ++block) {
    if (block == kWidth / 128 && !whole) break;
    uint32_t words[8][2];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const auto& fragment = sums[block * 8 + j];
        words[j][r] = both(factor * fragment[2 * r], factor * fragment[2 * r + 1]);
        // Now: otherwise the compiler would start on the next block as well, and run out of
        // registers.
        asm volatile("" : "+r"(words[j][r]));
      }
    const auto buffer = static_cast<uint32_t>(block % 2 * kPanelBytes);
    finish_reading<1>();  // stores of this half of the buffer; only one thread has any
    meet_group();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_blocks(to + buffer + static_cast<uint32_t>(((2 * i + to_pack) ^ (to_row & 7)) * 16),
                   words[2 * i][0], words[2 * i][1], words[2 * i + 1][0], words[2 * i + 1][1]);
    publish();
    meet_group();
    store_box(c, column + block * 64, row, result + buffer, thread == 0);
  }
}

// A consumer group: 64 rows of every tile.
template <bool kTransposed, class Added>
__device__ __forceinline__ void multiply_tiles(const Room& room, const CUtensorMap* c,
                                               const Extents& e, const Added& added, float factor,
                                               int rank, int group) {
  // From 16 columns of a to the next.
  constexpr int kNextA = 32, kNextB = kTransposed ? 32 : 16 * 128;
  const SharedFactor a = rows_factor(room.stages + static_cast<uint32_t>(group * kPanelBytes));
  const uint32_t panels_of_b = room.stages + kPanelsOfA * kPanelBytes;
  const SharedFactor b = kTransposed ? rows_factor(panels_of_b) : columns_factor(panels_of_b);
  // Both blocks load into this one's stage: two lanes of each warp signal one block each that it is
  // empty.
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const uint32_t empty = address_in(lane & 1, room.empty());
  const auto leave = [&](int stage) {
    if (lane < 2) arrive_there(empty + static_cast<uint32_t>(8 * stage));
  };
  RingPlace<kStages> at;
  for_tiles(e, rank, [&](int row, int column, bool whole) {
    row += group * 64;
    // Both take divisions: do them here, not while the sums hold all registers.
    asm volatile("" : "+r"(row), "+r"(column));
    const int steps = e.steps + added.steps_at(column);
    float sums[kWidth / 8][4];
    int before = 0;
    const auto multiply = [&]<int kColumnsOfB>() {
#pragma unroll 1
      for (int step = 0; step < steps; ++step) {
        wait_for_phase(room.full() + static_cast<uint32_t>(8 * at.stage), at.parity);
        const int stage = at.stage * kStageBytes;
        const SharedFactor left = a + stage, right = b + stage;
        begin_products();
#pragma unroll
        for (int k = 0; k < kStep / 16; ++k)
          multiply_wide<kColumnsOfB, kTransposed>(sums, left + k * kNextA, right + k * kNextB,
                                                  (step | k) != 0);
        end_products();
        finish_products<1>();  // of the previous step
        if (step > 0) leave(before);
        before = at.stage;
        at.next();
      }
    };
    if (whole)
      multiply.template operator()<kWidth>();
    else
      multiply.template operator()<kWidth / 2>();
    finish_products<0>();
    settled(sums);
    leave(before);
    store_sums(sums, c, row, column, whole, factor, room.result(group), group);
  });
  finish_stores();
}

}  // namespace capstan::cuda::product_tiles
