// The gradients of attention by wgmma. Scores are recomputed from lse, once per tile of queries for
// dq and once per tile of keys for dk and dv, so that every sum has one owner and a fixed order,
// and no atomics are needed.
//
// A block with a tile of dq has everything for the delta of its rows except o, which it reads while
// the copy engine loads its tiles. The kernel for dk and dv runs afterwards and reads delta.
#include "ops/cuda/attention/attention_delta.cuh"
#include "ops/cuda/attention/attention_keys.cuh"
#include "ops/cuda/attention/attention_queries.cuh"
#include "ops/cuda/attention/attention_wgmma.cuh"

namespace capstan::cuda {
namespace {

template <bool kBoxes, int kDim>
__global__ void __launch_bounds__(kGroup, kDim == 64 ? 4 : 2)
    query_gradient_kernel(Heads<bf16_t> dq, float* delta,
                          const __grid_constant__ Operand<kBoxes> d_o, Heads<bf16_t> o,
                          const float* lse, const __grid_constant__ Operand<kBoxes> q,
                          const __grid_constant__ Operand<kBoxes> k,
                          const __grid_constant__ Operand<kBoxes> v, Visible visible,
                          AttentionShape s, Order order, RotatedBy rotated) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  __shared__ Finder finder;
  __shared__ int firsts[kTile];
  __shared__ uint64_t barriers[2];
  Tile<kDim>* const tiles = tiles_of<kDim>(memory);
  const int h = order.head(), key_head = h / s.group;
  const Arrivals<kBoxes, kDim> arrivals{shared_address(barriers), s.T, s.D,
                                        static_cast<int>(threadIdx.x), threadIdx.x == 0};
  arrivals.make();
  finder.fetch(visible);
  const QueryRows rows(tile_of_queries(finder, order, visible, s.T), visible, s.T, firsts);
  const KeyWalk walk{rows.earliest / kTile * kTile, rows.end};
  Tile<kDim>&queries = tiles[0], &gradients = tiles[1];
  const auto keys = [&](int step) -> Tile<kDim>& { return tiles[2 + step % kSteps * 2]; };
  const auto values = [&](int step) -> Tile<kDim>& { return tiles[3 + step % kSteps * 2]; };
  const auto ask_for = [&](int step) {
    if (!walk.has(step)) return;
    arrivals.begin(step, step == 0 ? 4 : 2);
    arrivals.ask(step, keys(step), k, walk.key(step), key_head);
    arrivals.ask(step, values(step), v, walk.key(step), key_head);
    if (step == 0) {
      arrivals.ask(0, queries, q, rows.begin, h);
      arrivals.ask(0, gradients, d_o, rows.begin, h);
    }
    arrivals.end();
  };
  ask_for(0);
  const OutputRows<kBoxes, kDim> outputs(o, rows, h, s.D);
  const float scale = s.scale * kLog2e;
  float log_sum[2], shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    log_sum[r] = lse[int64_t{h} * s.T + min(rows.rows[r], s.T - 1)] * kLog2e;
  arrivals.wait(0);
  if constexpr (!kBoxes) __syncthreads();  // gradients, copied by other threads
  outputs.dot(shift, gradients);
#pragma unroll
  for (int r = 0; r < 2; ++r)
    if (threadIdx.x % 4 == 0 && rows.rows[r] < rows.end)
      delta[int64_t{h} * s.T + rows.rows[r]] = shift[r];

  float sums[kDim / 8][4] = {};
  for (int step = 0, key = walk.first; key < rows.end; ++step, key += kTile) {
    arrivals.wait(step);
    __syncthreads();
    add_query_gradients<kDim>(sums, queries, gradients, keys(step), values(step), log_sum, shift,
                              key, rows, scale, [&] { ask_for(step + 1); });
  }
  rotate_back<kDim>(sums, rotated, rows.rows, rows.end);
  store_rows<kBoxes>(dq, rows.begin, rows.end, h, s.D, sums, s.scale, s.scale, queries);
#endif
}

// Waits for the four warps of a group.
[[maybe_unused]] __device__ void meet_group(int group) {
  if (group == 0)
    meet<1, kGroup>();
  else if (group == 1)
    meet<2, kGroup>();
  else
    meet<3, kGroup>();
}

// 64 channels leave registers for three groups per SM, 128 for two.
template <int kDim>
constexpr int kMostGroups = kDim == 64 ? 3 : 2;

// A tile's worth of lse or delta for each step whose tiles are in shared memory.
using Numbers = float[kSteps][kTile];

// A group's loop over the tiles of queries that see a tile of keys: every kGroups-th tile of all
// heads that share it.
template <int kGroups>
struct QueryWalk {
  struct Item {
    int head, query;
  };
  int last_head, begin, end;  // the queries of a head are [begin, end), whole tiles

  __device__ Item first(int head, int group) const { return settle({head, begin + group * kTile}); }
  __device__ Item after(Item item) const {
    return settle({item.head, item.query + kGroups * kTile});
  }
  __device__ bool has(const Item& item) const { return item.head <= last_head; }

 private:
  // Rows beyond a head's queries belong to the next head.
  __device__ Item settle(Item item) const {
    while (item.query >= end && item.head <= last_head) {
      item.query -= end - begin;
      ++item.head;
    }
    return item;
  }
};

// The groups of a block share a tile of keys and divide the tiles of queries; group 0 adds up.
template <bool kBoxes, int kDim, int kGroups>
__global__ void __launch_bounds__(kGroups* kGroup, kMostGroups<kDim> / kGroups)
    key_gradient_kernel(Heads<bf16_t> dk, Heads<bf16_t> dv,
                        const __grid_constant__ Operand<kBoxes> d_o, const float* lse,
                        const float* delta, const __grid_constant__ Operand<kBoxes> q,
                        const __grid_constant__ Operand<kBoxes> k,
                        const __grid_constant__ Operand<kBoxes> v, Visible visible,
                        AttentionShape s, Order order, RotatedBy rotated) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  __shared__ Finder finder;
  __shared__ int lasts[kTile];
  __shared__ alignas(8) Numbers log_sums[kGroups], shifts[kGroups];
  __shared__ uint64_t barriers[kGroups + 1][2];  // the last stages are for keys and values
  Tile<kDim>* const tiles = tiles_of<kDim>(memory);
  Tile<kDim>&keys = tiles[0], &values = tiles[1];
  // Uniform across a warp, which the compiler should know.
  const int group =
      kGroups == 1 ? 0 : __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  const int index = static_cast<int>(threadIdx.x) % kGroup, head = order.head();
  const Arrivals<kBoxes, kDim> arrivals{shared_address(barriers[group]), s.T, s.D, index,
                                        index == 0};
  const Arrivals<kBoxes, kDim> shared{shared_address(barriers[kGroups]), s.T, s.D, index,
                                      threadIdx.x == 0};
  arrivals.make();
  shared.make();
  finder.fetch(visible);
  const int begin = kTile * finder.tile(order, [&](int tile) {
    return visible.last(min((tile + 1) * kTile, s.T) - 1) - tile * kTile;
  });
  const int end = min(begin + kTile, s.T);
  if (threadIdx.x < kTile)
    lasts[threadIdx.x] = visible.last(min(begin + static_cast<int>(threadIdx.x), s.T - 1));
  __syncthreads();
  const KeyRows rows = {begin,
                        lasts[0],
                        {begin + row_of(0), begin + row_of(2)},
                        {lasts[row_of(0)], lasts[row_of(2)]}};
  const int per_head = (lasts[kTile - 1] - begin + kTile - 1) / kTile;
  const float scale = s.scale * kLog2e;
  shared.begin(0, 2);
  shared.ask(0, keys, k, begin, head, group == 0);
  shared.ask(0, values, v, begin, head, group == kGroups - 1);
  shared.end();
  const QueryWalk<kGroups> walk{(head + 1) * s.group - 1, begin, begin + per_head * kTile};
  Tile<kDim>* const stages = tiles + 2 + group * 2 * kSteps;  // pairs of queries and gradients
  const auto ask_for = [&](const auto& item, int arrival) {
    if (walk.has(item)) {
      const int stage = arrival % kSteps;
      arrivals.begin(arrival, 2);
      arrivals.ask(arrival, stages[2 * stage], q, item.query, item.head);
      arrivals.ask(arrival, stages[2 * stage + 1], d_o, item.query, item.head);
      const int64_t at = int64_t{item.head} * s.T + min(item.query + index % kTile, s.T - 1);
      auto& numbers = index < kTile ? log_sums : shifts;
      copy_ahead<4>(shared_address(&numbers[group][stage][index % kTile]),
                    (index < kTile ? lse : delta) + at);
    }
    end_group();
  };
  auto item = walk.first(head * s.group, group);
  ask_for(item, 0);
  shared.wait(0);
  __syncthreads();  // keys and values, loaded by other threads

  float key_sums[kDim / 8][4] = {}, value_sums[kDim / 8][4] = {};
  settled(key_sums);  // zero here: ptxas would serialize products whose sums start between them
  settled(value_sums);
  for (int arrival = 0; walk.has(item); ++arrival) {
    finish_products<0>();
    arrivals.wait(arrival);
    finish_copies<0>();
    meet_group(group);
    const int stage = arrival % kSteps;
    const Tile<kDim>&queries = stages[2 * stage], &gradients = stages[2 * stage + 1];
    add_key_gradients<kDim>(key_sums, value_sums, keys, values, queries, gradients,
                            log_sums[group][stage], shifts[group][stage], item.query, rows, scale,
                            [&] {
                              item = walk.after(item);
                              ask_for(item, arrival + 1);
                            });
  }
  finish_products<0>();
  settled(key_sums);
  settled(value_sums);
  finish_copies<0>();
  // All groups reach this barrier equally often, so that checkers that count barriers understand
  // it.
  const int odd = per_head * s.group % kGroups;
  if (odd > 0 && group >= odd) meet_group(group);
  meet_group(group);  // the last tiles have been read

  // A group's sums, thread by thread, in its own stages.
  constexpr int kValues = kDim / 2;  // per thread, in each of the two sums
  static_assert(sizeof(Tile<kDim>) * 2 * kSteps >= 2 * kValues * kGroup * sizeof(float));
  if (group > 0) {
    auto* const room = reinterpret_cast<float*>(stages) + index;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      room[i * kGroup] = key_sums[i / 4][i % 4];
      room[(kValues + i) * kGroup] = value_sums[i / 4][i % 4];
    }
  }
  if constexpr (kGroups > 1) __syncthreads();
  if (group > 0) return;
  for (int g = 1; g < kGroups; ++g) {
    const auto* const room = reinterpret_cast<const float*>(stages + g * 2 * kSteps) + index;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      key_sums[i / 4][i % 4] += room[i * kGroup];
      value_sums[i / 4][i % 4] += room[(kValues + i) * kGroup];
    }
  }
  rotate_back<kDim>(key_sums, rotated, rows.rows, end);
  store_rows<kBoxes>(dk, begin, end, head, s.D, key_sums, s.scale, s.scale, keys);
  store_rows<kBoxes>(dv, begin, end, head, s.D, value_sums, 1.0f, 1.0f, values);
#endif
}

}  // namespace

void wgmma_query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                          const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  if (ring_query_gradient(q, dq, delta, d_o, o, lse, in))
    return launched("attention's gradient of queries");
  const AttentionShape s = in.shape();
  const Order order = order_of(q, s.T, s.H);
  const auto launch = [&]<bool kBoxes, int kDim>(const Operand<kBoxes>(&tiles)[4]) {
    constexpr int kBytes = shared_bytes<kDim>(2 + 2 * kSteps);
    const auto kernel = query_gradient_kernel<kBoxes, kDim>;
    allow(kernel, kBytes);
    kernel<<<static_cast<unsigned>(order.tiles * order.heads), kGroup, kBytes, stream_of(q)>>>(
        heads<bf16_t>(dq), data<float>(delta), tiles[0], heads<bf16_t>(o), data<float>(lse),
        tiles[1], tiles[2], tiles[3], Visible(in.mask), s, order, RotatedBy(in.rotated));
  };
  if (!with_operands<false>(s.D, {dq, o}, {d_o, in.q, in.k, in.v}, launch)) {
    kMmaAttention.query_gradient(q, dq, delta, d_o, o, lse, in);
    if (in.rotated) rotate_back(q, dq, in.rotated);
  }
  launched("attention's gradient of queries");
}

void wgmma_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                        const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  if (ring_key_gradient(q, dk, dv, d_o, lse, delta, in))
    return launched("attention's gradient of keys");
  const AttentionShape s = in.shape();
  const Order order = order_of(q, s.T, in.k.dim(1));
  // Groups that need not combine their sums are faster, if there are many and none is long: heads
  // that share keys make long loops, and a single group has at most the longest of kGroup tiles.
  const bool many = s.group == 1 && order.tiles <= kGroup &&
                    order.tiles * order.heads >= 6 * q.cuda().multiprocessors();
  const auto launch = [&]<bool kBoxes, int kDim>(const Operand<kBoxes>(&tiles)[4]) {
    const auto run = [&]<int kGroups>() {
      constexpr int kBytes = shared_bytes<kDim>(2 + 2 * kSteps * kGroups);
      const auto kernel = key_gradient_kernel<kBoxes, kDim, kGroups>;
      allow(kernel, kBytes);
      kernel<<<static_cast<unsigned>(order.tiles * order.heads), kGroups * kGroup, kBytes,
               stream_of(q)>>>(heads<bf16_t>(dk), heads<bf16_t>(dv), tiles[0], data<float>(lse),
                               data<float>(delta), tiles[1], tiles[2], tiles[3], Visible(in.mask),
                               s, order, RotatedBy(in.rotated));
    };
    if constexpr (!kBoxes || kDim == 64)  // most other cases are handled above
      if (many) return run.template operator()<1>();
    run.template operator()<kMostGroups<kDim>>();
  };
  if (!with_operands<true>(s.D, {dk, dv}, {d_o, in.q, in.k, in.v}, launch)) {
    kMmaAttention.key_gradient(q, dk, dv, d_o, lse, delta, in);
    if (in.rotated) rotate_back(q, dk, in.rotated);
  }
  launched("attention's gradient of keys");
}

}  // namespace capstan::cuda
