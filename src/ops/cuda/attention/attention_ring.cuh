#pragma once

#include <climits>

#include "ops/cuda/attention/attention_wgmma.cuh"
#include "ops/cuda/product/mma.cuh"

// Warp-specialized attention for heads of 65 to 128 channels. Each SM has one persistent block. One
// of its warp groups is the producer, which loads tiles; the other two are consumers, which
// multiply them.
//
// The work is divided into work items. For each, both consumers have their own tiles of 64 tokens
// and loop over the same tiles of other tokens, which are loaded once for both into a ring buffer
// of stages: otherwise the cache bandwidth would be the limit. The producer runs ahead, and starts
// loading the next item's tiles before the last ones are consumed.
namespace capstan::cuda {

inline constexpr int kRingDim = 128;   // channels of a tile
inline constexpr int kRingGroups = 2;  // consumers
inline constexpr int kRingThreads = (kRingGroups + 1) * kGroup;
using RingTile = Tile<kRingDim>;

// Marks a value as uniform across the warp, which the compiler cannot know: it then keeps such
// numbers, and what it derives from them, in uniform registers.
__device__ inline int same_in_warp(int x) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffff, x);
#else
  return x;
#endif
}
// The last group is the producer.
__device__ inline int group_of_warp() {
  return same_in_warp(static_cast<int>(threadIdx.x) / kGroup);
}

// ---- work items --------------------------------------------------------------------------------

// How tiles form work items: both consumers have the same tokens of two heads that share keys, or
// adjacent tokens of one head.
struct Items {
  int places, units;    // along the tokens; heads, or pairs of them
  int pairs;            // of heads that share keys; 0 if groups have adjacent tokens
  bool units_together;  // items of a place are consecutive; else items of a unit are

  static Items of(const Queue& q, const AttentionShape& s) {
    const int64_t tiles = blocks_for(s.T, kTile);
    const int64_t pairs = s.group >= kRingGroups ? blocks_for(s.group, kRingGroups) : 0;
    const int64_t places = pairs > 0 ? tiles : blocks_for(tiles, kRingGroups);
    const int64_t units = pairs > 0 ? s.H / s.group * pairs : s.H;
    return {static_cast<int>(places), static_cast<int>(units), static_cast<int>(pairs),
            places * units <= 4 * q.cuda().multiprocessors()};
  }
  __host__ __device__ int count() const { return places * units; }
  unsigned blocks(const Queue& q) const {
    return static_cast<unsigned>(std::min(count(), q.cuda().multiprocessors()));
  }
  // The tokens of a position, for both groups.
  __device__ int begin(int place) const { return place * width(); }
  __device__ int end(int place, int T) const { return min((place + 1) * width(), T); }

 private:
  __device__ int width() const { return pairs > 0 ? kTile : kRingGroups * kTile; }
};

// The starts of documents, and the order of positions, in shared memory: those with the most work
// come first, so that the last to finish are short.
struct Places {
  static constexpr int kMost = 512, kMostStarts = 256;
  int starts[kMostStarts];
  int work[kMost], by_rank[kMost];

  // Called by all threads; includes a barrier. Afterwards `visible` reads the starts from here, if
  // they fit.
  template <class Work>
  __device__ void sort(Visible& visible, int count, const Work& work_of) {
    const int thread = static_cast<int>(threadIdx.x);
    if (visible.documents < kMostStarts) {
      for (int i = thread; i <= visible.documents; i += kRingThreads) starts[i] = visible.starts[i];
      visible.starts = starts;
      __syncthreads();
    }
    if (count <= kMost) {
      for (int i = thread; i < count; i += kRingThreads) work[i] = work_of(i);
      __syncthreads();
      for (int i = thread; i < count; i += kRingThreads) {
        int before = 0;
        for (int j = 0; j < count; ++j)
          before += work[j] > work[i] || (work[j] == work[i] && j > i);
        by_rank[before] = i;
      }
    }
    __syncthreads();
  }
  // In reverse order if there are too many to sort.
  __device__ int at(int rank, int count) const {
    return count > kMost ? count - 1 - rank : by_rank[rank];
  }
};

// The work items of a block. In every round each block has one; the order alternates between
// rounds, so that no block always has the most work.
class WorkItems {
 public:
  __device__ explicit WorkItems(const Items& items)
      : count_(items.count()), item_(static_cast<int>(blockIdx.x)) {}
  __device__ bool has() const { return item_ < count_; }
  __device__ int item() const { return item_; }
  __device__ void next() {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    first_ += blocks;
    back_ = !back_;
    item_ = first_ + (back_ ? blocks - 1 - block : block);
  }

 private:
  int count_, item_, first_ = 0;
  bool back_ = false;
};

// A group's view of a work item: its tokens (some or all may be out of range), its head (-1 for
// none), and the visible range of its first and last tokens: keys from there on, or queries up to
// there.
struct Share {
  int begin, head, earliest, latest;

  __device__ bool works(int T) const { return head >= 0 && begin < T; }
};
struct alignas(16) Item {
  Share shares[kRingGroups];
  int first, end;                 // the tokens that both loop over, from the first of a tile
  int walked_head, walked_heads;  // the heads of those, one after the other

  Item() = default;
  // Only the tokens and heads of its parts.
  __device__ Item(const Items& items, const Places& places, int number, int heads_that_share) {
    const bool together = items.units_together, paired = items.pairs > 0;
    const int rank = together ? number / items.units : number % items.places;
    const int unit = together ? number % items.units : number / items.places;
    const int pairs = max(items.pairs, 1), shared = paired ? heads_that_share : 1;
    const int begin = items.begin(places.at(rank, items.places));
    const int head = unit / pairs * shared + unit % pairs * kRingGroups;
    const int head_end = (unit / pairs + 1) * shared;
#pragma unroll
    for (int g = 0; g < kRingGroups; ++g) {
      shares[g].begin = begin + (paired ? 0 : g * kTile);
      shares[g].head = head + (paired ? g : 0);
      if (shares[g].head >= head_end) shares[g].head = -1;
    }
  }
};

// Queries, which loop over the keys that some of them see.
__device__ inline Item item_of_queries(const Items& items, const Places& places, int number,
                                       const Visible& visible, const AttentionShape& s) {
  Item item(items, places, number, s.group);
  for (Share& share : item.shares) {
    share.earliest = visible.first(min(share.begin, s.T - 1));
    share.latest = visible.first(min(share.begin + kTile, s.T) - 1);
  }
  item.first = item.shares[0].earliest / kTile * kTile;
  item.end = min(item.shares[kRingGroups - 1].begin + kTile, s.T);
  item.walked_head = item.shares[0].head / s.group;
  item.walked_heads = 1;
  return item;
}
// Keys, which loop over the queries that see some of them, of all heads that share them.
__device__ inline Item item_of_keys(const Items& items, const Places& places, int number,
                                    const Visible& visible, int T, int heads_that_share) {
  Item item(items, places, number, 1);
  for (Share& share : item.shares) {
    share.earliest = visible.last(min(share.begin, T - 1));
    share.latest = visible.last(min(share.begin + kTile, T) - 1);
  }
  item.first = item.shares[0].begin;
  item.end = item.shares[kRingGroups - 1].latest;
  item.walked_head = item.shares[0].head * heads_that_share;
  item.walked_heads = heads_that_share;
  return item;
}

// ---- ring buffers ------------------------------------------------------------------------------

// Who signals that a stage has been read: one thread of each warp, if the tensor cores or one
// thread read it; or every consumer thread, if all read it themselves. One per warp would suffice
// there, too, after __syncwarp; but racecheck does not know that.
enum class Leave : uint8_t { by_warp, by_thread };

// The barriers of a ring of stages, in shared memory: the phases of each end when its stage is
// full, and when it has been read.
template <int kStages, Leave kLeave>
struct RingBarriers {
  uint64_t full[kStages], empty[kStages];

  // Called by one thread, before a barrier. `producers` arrivals fill a stage.
  __device__ void make(int producers) {
    for (int i = 0; i < kStages; ++i) {
      make_barrier(shared_address(&full[i]), producers);
      make_barrier(shared_address(&empty[i]),
                   (kLeave == Leave::by_warp ? 4 : kGroup) * kRingGroups);
    }
  }
};

// One end of a ring: of a producer thread, or of a consumer thread.
template <int kStages, Leave kLeave>
class RingEnd {
 public:
  __device__ explicit RingEnd(const RingBarriers<kStages, kLeave>& barriers)
      : full_(shared_address(barriers.full)), empty_(shared_address(barriers.empty)) {}
  __device__ int stage() const { return at_.stage; }
  __device__ void next() { at_.next(); }
  __device__ uint32_t full() const { return full_ + static_cast<uint32_t>(8 * at_.stage); }
  __device__ void wait_until_empty() const {
    wait_for_phase(empty_ + static_cast<uint32_t>(8 * at_.stage), at_.parity ^ 1);
  }
  __device__ void wait_until_full() const { wait_for_phase(full(), at_.parity); }
  // Called by a warp when it has read the stage.
  __device__ void leave(int stage) const {
    if (kLeave == Leave::by_warp) __syncwarp();
    if (kLeave == Leave::by_thread || lane() == 0)
      arrive(empty_ + static_cast<uint32_t>(8 * stage));
  }
  __device__ void pass() {
    wait_until_full();
    leave(at_.stage);
    at_.next();
  }

 private:
  uint32_t full_, empty_;
  RingPlace<kStages> at_;
};

// Shared memory of a block besides its tiles: kOwn tiles of each group, in kOwnStages, and two of
// the tokens that both loop over, in kStages.
template <int kOwn, int kOwnStages, int kStages, Leave kLeave = Leave::by_warp>
struct RingBlock {
  static constexpr int kOwnTiles = kOwn * kRingGroups, kWalkedStages = kStages;
  static constexpr int kBytes = shared_bytes<kRingDim>(kOwnTiles * kOwnStages + 2 * kStages);
  using OwnEnd = RingEnd<kOwnStages, Leave::by_warp>;
  using End = RingEnd<kStages, kLeave>;

  Places places;
  Item items[kOwnStages];
  RingBarriers<kOwnStages, Leave::by_warp> own_barriers;
  RingBarriers<kStages, kLeave> barriers;

  __device__ void make_barriers(int producers) {
    if (threadIdx.x > 0) return;
    own_barriers.make(1);
    barriers.make(producers);
    publish_barriers();
  }
  static __device__ RingTile& own(RingTile* tiles, int stage, int which, int group) {
    return tiles[stage * kOwnTiles + which * kRingGroups + group];
  }
  static __device__ RingTile& walked(RingTile* tiles, int stage, int which) {
    return tiles[kOwnStages * kOwnTiles + stage * 2 + which];
  }
};

// ---- the producer ------------------------------------------------------------------------------

using RingOperand = Operand<true>;

__device__ inline bool leads() {
  return threadIdx.x % kGroup == 0;
}
// Rows row … row + 63 of a head; rows out of range are zeros.
__device__ inline void load_tile(RingTile& to, const RingOperand& from, int row, int head,
                                 uint32_t full) {
#pragma unroll
  for (int c = 0; c < kRingDim; c += 64)
    load_box(shared_address(to.values) + static_cast<uint32_t>(c / 64 * kPanelBytes), &from.map, c,
             head, row, full);
}

// Loads the tiles of all work items of a block, of `own` and of `walked`. One thread does it; all
// may call also(stage, token, head, full) to put more into a stage.
template <int kOwn, int kOwnStages, int kStages, Leave kLeave, class ItemOf, class Also>
__device__ void produce_items(RingBlock<kOwn, kOwnStages, kStages, kLeave>& block, RingTile* tiles,
                              WorkItems work, const ItemOf& item_of,
                              const RingOperand* const (&own)[kOwn],
                              const RingOperand* const (&walked)[2], const Also& also) {
  using Block = RingBlock<kOwn, kOwnStages, kStages, kLeave>;
  constexpr int kTileBytes = sizeof(RingTile);
  typename Block::OwnEnd own_ring(block.own_barriers);
  typename Block::End ring(block.barriers);
  for (; work.has(); work.next()) {
    const Item item = item_of(work.item());
    own_ring.wait_until_empty();
    if (leads()) {
      const uint32_t full = own_ring.full();
      block.items[own_ring.stage()] = item;
      arrive_expecting(full, Block::kOwnTiles * kTileBytes);
#pragma unroll
      for (int i = 0; i < kOwn; ++i)
        for (int g = 0; g < kRingGroups; ++g)
          load_tile(Block::own(tiles, own_ring.stage(), i, g), *own[i], item.shares[g].begin,
                    max(item.shares[g].head, 0), full);
    }
    own_ring.next();
    for (int head = item.walked_head; head < item.walked_head + item.walked_heads; ++head)
      for (int token = item.first; token < item.end; token += kTile) {
        ring.wait_until_empty();
        const uint32_t full = ring.full();
        if (leads()) {
          arrive_expecting(full, 2 * kTileBytes);
#pragma unroll
          for (int i = 0; i < 2; ++i)
            load_tile(Block::walked(tiles, ring.stage(), i), *walked[i], token, head, full);
        }
        also(ring.stage(), token, head, full);
        ring.next();
      }
  }
}

// All threads start with 168 registers; the producer keeps this many and gives the rest to the
// consumers.
template <int kKept>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kKept));
}
template <int kKept>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(168 + (168 - kKept) / kRingGroups));
}

// Begins a block whose own tiles are queries: returns true for consumers; the producer loads the
// tiles of all items and returns false.
template <int kOwn, int kOwnStages, int kStages>
__device__ __forceinline__ bool begin_queries(RingBlock<kOwn, kOwnStages, kStages>& block,
                                              RingTile* tiles, int group, const WorkItems& work,
                                              const Items& items, Visible& visible,
                                              const AttentionShape& s,
                                              const RingOperand* const (&own)[kOwn],
                                              const RingOperand* const (&walked)[2]) {
  block.make_barriers(1);
  block.places.sort(visible, items.places, [&](int place) {
    return items.end(place, s.T) - visible.first(items.begin(place));
  });
  if (group < kRingGroups) {
    take_registers<24>();
    return true;
  }
  give_registers<24>();
  if (!leads()) return false;
  const auto item_of = [&](int i) { return item_of_queries(items, block.places, i, visible, s); };
  produce_items(block, tiles, work, item_of, own, walked, [](int, int, int, uint32_t) {});
  return false;
}

// ---- the consumers -----------------------------------------------------------------------------

// A group's part of a work item, and what it loops over.
struct Walk : Share {
  int first, end;

  // Called by a warp; the thread that reads is the one that signals RingEnd::leave.
  __device__ Walk(const Item& item, int group) {
    const auto read = [](const volatile int& x) {
      int number = INT_MIN;
      if (lane() == 0) number = x;
      return same_in_warp(number);
    };
    const Share& share = item.shares[group];
    begin = read(share.begin);
    head = read(share.head);
    earliest = read(share.earliest);
    latest = read(share.latest);
    first = read(item.first);
    end = read(item.end);
  }
};

// A tile as left factors of 16 channels each, in registers.
using RowFactors = uint32_t[kRingDim / 16][4];
__device__ inline void load_factors(RowFactors& to, RingTile& tile) {
  const int row = static_cast<int>(threadIdx.x) % kGroup / 32 * 16 + lane() % 16;
  uint32_t at = shared_address(tile.at(row, lane() / 16 * 8));
  // Now: otherwise the compiler would keep the addresses of all factors and run out of registers.
  asm volatile("" : "+r"(at));
#pragma unroll
  for (uint32_t c = 0; c < kRingDim / 16; ++c)
    load_matrices(to[c], (at ^ c % 4 * 32) + c / 4 * kPanelBytes);
}
// scores = left rightᵀ, over all channels.
__device__ inline void multiply_rows(float (&scores)[kColumns][4], const RowFactors& left,
                                     const RingTile& right) {
  const SharedFactor b = rows_factor(shared_address(right.values));
#pragma unroll
  for (int c = 0; c < kRingDim; c += 16)
    multiply(scores, left[c / 16], b + (c / 64 * kPanelBytes + c % 64 * 2), c > 0);
}

// Transposes four words across the four lanes that share rows: lane l gets word l of all, in order.
__device__ inline void transpose(uint32_t (&words)[4]) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool high = (static_cast<int>(threadIdx.x) & bit) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & bit) != 0) continue;
      uint32_t &low_word = words[i], &high_word = words[i + bit];
      const uint32_t other = __shfl_xor_sync(0xffffffff, high ? low_word : high_word, bit);
      (high ? low_word : high_word) = other;
    }
  }
}
// Stores a thread's two rows of results, times a factor each, within the valid rows and channels.
__device__ inline void store_rows(const Heads<bf16_t>& to, const int (&rows)[2], int end, int head,
                                  int D, const float (&sums)[kRingDim / 8][4], float low_factor,
                                  float high_factor) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float factor = r == 0 ? low_factor : high_factor;
    bf16_t* const row = to.at(rows[r], head);
#pragma unroll
    for (int j = 0; j < kRingDim / 8; j += 4) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = both(sums[j + i][2 * r] * factor, sums[j + i][2 * r + 1] * factor);
      transpose(words);
      const int channel = 8 * (j + static_cast<int>(threadIdx.x) % 4);
      if (rows[r] < end && channel < D)
        *reinterpret_cast<uint4*>(row + channel) = {words[0], words[1], words[2], words[3]};
    }
  }
}

// ---- on the host -------------------------------------------------------------------------------

// Tensor maps of the tensors whose tiles are loaded. False if these kernels do not support the
// heads, or if the tensors or the `others`, whose rows are written, are not aligned.
template <size_t kCount>
bool make_ring_operands(RingOperand (&operands)[kCount], const Tensor (&tiles)[kCount], int D,
                        std::initializer_list<Tensor> others) {
  if (D <= 64 || D > kRingDim) return false;
  for (const Tensor& t : others)
    if (!packs(8, t)) return false;
  for (size_t i = 0; i < kCount; ++i)
    if (!packs(8, tiles[i]) || !map_heads(operands[i].map, tiles[i])) return false;
  return true;
}

}  // namespace capstan::cuda
