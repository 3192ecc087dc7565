// The gradients of attention by wgmma. Scores are made again from lse, once per tile of queries for
// dq and once per tile of keys for dk and dv, so that every sum has one owner and a fixed order,
// and no atomics are needed.
#include "ops/cuda/attention_wgmma.cuh"

namespace capstan::cuda {
namespace {

constexpr int kQueryTiles = 2 + 2 * kStages;

template <int kEach, int kDim>
__global__ void __launch_bounds__(kGroup, kDim == 64 ? 4 : 2)
    query_gradient_kernel(Heads<bf16_t> dq, Heads<bf16_t> d_o, const float* lse, const float* delta,
                          Heads<bf16_t> q, Heads<bf16_t> k, Heads<bf16_t> v, Visible visible,
                          AttentionShape s, Order order, TurnedBy turned) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  __shared__ Finder finder;
  __shared__ int firsts[kTile];
  Tile<kDim>* const tiles = tiles_of<kDim>(memory);  // queries, gradients
  const int h = order.head();
  finder.fetch(visible);
  const QueryRows rows(tile_of_queries<1>(finder, order, visible, s.T), visible, s.T, firsts);
  fill<kEach>(tiles[0], q, rows.begin, rows.end, h, s.D, static_cast<int>(threadIdx.x));
  fill<kEach>(tiles[1], d_o, rows.begin, rows.end, h, s.D, static_cast<int>(threadIdx.x));
  const KeyWalk<kEach, kDim> walk{tiles + 2, k,   v,  h / s.group, rows.earliest / kTile * kTile,
                                  rows.end,  s.T, s.D};
  walk.fill_keys(0);
  walk.fill_values(0);
  end_group();
  const float scale = s.scale * kLog2e;
  float log_sum[2], shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t at = int64_t{h} * s.T + min(rows.rows[r], s.T - 1);
    log_sum[r] = lse[at] * kLog2e;
    shift[r] = delta[at];
  }

  float sums[kDim / 8][4] = {};
  for (int step = 0, key = walk.first; key < rows.end; ++step, key += kTile) {
    finish_groups<0>();
    __syncthreads();
    float p[kColumns][4], d[kColumns][4];
    begin_products();
    multiply_rows(p, tiles[0], walk.keys(step));
    end_products();
    multiply_rows(d, tiles[1], walk.values(step));
    end_products();
    walk.fill_keys(step + 1);
    walk.fill_values(step + 1);
    end_group();
    finish_products<1>();
    settled(p);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[j][i] = exp2_of(fmaf(p[j][i], scale, -log_sum[i / 2]));
    if (rows.cuts(key)) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!rows.sees(i, key + column_of(j, i))) p[j][i] = 0;
    }
    finish_products<0>();
    settled(d);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) d[j][i] = p[j][i] * (d[j][i] - shift[i / 2]);
    Factors factors;
    to_factors(factors, d);
    begin_products();
    multiply_columns<kDim>(sums, factors, walk.keys(step));
    end_products();
    finish_products<0>();  // ptxas would serialize products whose sums go around the loop
    settled(sums);
  }
  turn_back<kDim>(sums, turned, rows.rows, rows.end);
  store_rows<kEach>(dq, rows.begin, rows.end, h, s.D, sums, s.scale, s.scale, tiles[0], 0);
#endif
}

// One f32 of global memory into shared memory, behind the thread's back.
__device__ void copy_one(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}

// Channels of 64 leave registers for three groups in a multiprocessor, 128 for two.
template <int kDim>
constexpr int kMostGroups = kDim == 64 ? 3 : 2;

// A tile's worth of lse or delta for each step whose tiles are in shared memory.
using Numbers = float[kStages][kTile];

// A group's walk over tiles of queries that see a tile of keys: every kGroups-th of those of all
// heads that share it.
template <int kEach, int kDim, int kGroups>
struct QueryWalk {
  struct Item {
    int head, query;
  };
  Tile<kDim>* stages;  // pairs of queries and gradients
  Numbers &log_sums, &shifts;
  const float *lse, *delta;
  Heads<bf16_t> q, d_o;
  int last_head, begin, end, T, D, index;  // the queries of a head are [begin, end), whole tiles

  __device__ Item first(int head, int group) const { return settle({head, begin + group * kTile}); }
  __device__ Item after(Item item) const {
    return settle({item.head, item.query + kGroups * kTile});
  }
  __device__ bool has(const Item& item) const { return item.head <= last_head; }
  __device__ void fill_item(const Item& item, int stage) const {
    if (has(item)) {
      fill<kEach>(stages[2 * stage], q, item.query, T, item.head, D, index);
      fill<kEach>(stages[2 * stage + 1], d_o, item.query, T, item.head, D, index);
      const int64_t at = int64_t{item.head} * T + min(item.query + index % kTile, T - 1);
      copy_one(&(index < kTile ? log_sums : shifts)[stage][index % kTile],
               (index < kTile ? lse : delta) + at);
    }
    end_group();
  }

 private:
  // What lies beyond a head's queries is the next one's.
  __device__ Item settle(Item item) const {
    while (item.query >= end && item.head <= last_head) {
      item.query -= end - begin;
      ++item.head;
    }
    return item;
  }
};

// The groups of a block share a tile of keys and deal out the tiles of queries; group 0 adds up.
// Scores are made transposed, so that rows are keys.
template <int kEach, int kDim, int kGroups>
__global__ void __launch_bounds__(kGroups* kGroup, kMostGroups<kDim> / kGroups)
    key_gradient_kernel(Heads<bf16_t> dk, Heads<bf16_t> dv, Heads<bf16_t> d_o, const float* lse,
                        const float* delta, Heads<bf16_t> q, Heads<bf16_t> k, Heads<bf16_t> v,
                        Visible visible, AttentionShape s, Order order, TurnedBy turned) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  __shared__ Finder finder;
  __shared__ int lasts[kTile];
  __shared__ alignas(8) Numbers log_sums[kGroups], shifts[kGroups];
  Tile<kDim>* const tiles = tiles_of<kDim>(memory);
  Tile<kDim>&keys = tiles[0], &values = tiles[1];
  // The same in all lanes of a warp, as the compiler should know.
  const int group =
      kGroups == 1 ? 0 : __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  const int index = static_cast<int>(threadIdx.x) % kGroup, head = order.head();
  finder.fetch(visible);
  const int begin = kTile * finder.tile(order, [&](int tile) {
    return visible.last(min((tile + 1) * kTile, s.T) - 1) - tile * kTile;
  });
  const int end = min(begin + kTile, s.T);
  for (int i = group; i < 2; i += kGroups)
    fill<kEach>(tiles[i], i == 0 ? k : v, begin, end, head, s.D, index);
  if (threadIdx.x < kTile)
    lasts[threadIdx.x] = visible.last(min(begin + static_cast<int>(threadIdx.x), s.T - 1));
  __syncthreads();
  const int rows[2] = {begin + row_of(0), begin + row_of(2)};
  const int last[2] = {lasts[row_of(0)], lasts[row_of(2)]};
  const int earliest = lasts[0], per_head = (lasts[kTile - 1] - begin + kTile - 1) / kTile;
  const float scale = s.scale * kLog2e;
  const QueryWalk<kEach, kDim, kGroups> walk{tiles + 2 + group * 2 * kStages,
                                             log_sums[group],
                                             shifts[group],
                                             lse,
                                             delta,
                                             q,
                                             d_o,
                                             (head + 1) * s.group - 1,
                                             begin,
                                             begin + per_head * kTile,
                                             s.T,
                                             s.D,
                                             index};
  auto item = walk.first(head * s.group, group);
  walk.fill_item(item, 0);
  finish_groups<0>();
  __syncthreads();  // keys and values, which others have filled

  float key_sums[kDim / 8][4] = {}, value_sums[kDim / 8][4] = {};
  settled(key_sums);  // zeros, here: ptxas would serialize products whose sums begin between them
  settled(value_sums);
  for (int stage = 0; walk.has(item); stage ^= 1) {
    finish_products<0>();
    finish_groups<0>();
    meet_group(group);
    const Tile<kDim>&queries = walk.stages[2 * stage], &gradients = walk.stages[2 * stage + 1];
    const int query = item.query;
    float p[kColumns][4], d[kColumns][4];
    begin_products();
    multiply_rows(p, keys, queries);
    end_products();
    multiply_rows(d, values, gradients);
    end_products();
    item = walk.after(item);
    walk.fill_item(item, stage ^ 1);
    finish_products<1>();
    settled(p);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const auto log_sum = *reinterpret_cast<const float2*>(&walk.log_sums[stage][column_of(j, 0)]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        p[j][i] = exp2_of(fmaf(p[j][i], scale, -kLog2e * (i % 2 == 0 ? log_sum.x : log_sum.y)));
    }
    if (query < begin + kTile || query + kTile > earliest) {
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int at = query + column_of(j, i);
          if (at < rows[i / 2] || at >= last[i / 2]) p[j][i] = 0;
        }
    }
    Factors factors;
    to_factors(factors, p);
    begin_products();
    multiply_columns<kDim>(value_sums, factors, gradients);
    end_products();
    finish_products<1>();
    settled(d);
    // Probabilities are read back from their factors: there are no registers to keep both.
#pragma unroll
    for (int j = 0; j < kColumns; ++j) {
      const auto shift = *reinterpret_cast<const float2*>(&walk.shifts[stage][column_of(j, 0)]);
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const uint32_t pair = factors[j / 2][j % 2 * 2 + i / 2];
        d[j][i] = __uint_as_float(pair << 16) * (d[j][i] - shift.x);
        d[j][i + 1] = __uint_as_float(pair & 0xffff0000) * (d[j][i + 1] - shift.y);
      }
    }
    Factors key_factors;
    to_factors(key_factors, d);
    begin_products();
    multiply_columns<kDim>(key_sums, key_factors, queries);
    end_products();
  }
  finish_products<0>();
  settled(key_sums);
  settled(value_sums);
  finish_groups<0>();
  // All groups meet equally often: checkers that count barriers can tell what lies between them.
  const int odd = per_head * s.group % kGroups;
  if (odd > 0 && group >= odd) meet_group(group);
  meet_group(group);  // the last tiles have been read

  // A group's sums, thread by thread, in its own stages.
  constexpr int kValues = kDim / 2;  // of one thread, in each of the two sums
  static_assert(sizeof(Tile<kDim>) * 2 * kStages >= 2 * kValues * kGroup * sizeof(float));
  if (group > 0) {
    auto* const room = reinterpret_cast<float*>(walk.stages) + index;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      room[i * kGroup] = key_sums[i / 4][i % 4];
      room[(kValues + i) * kGroup] = value_sums[i / 4][i % 4];
    }
  }
  if constexpr (kGroups > 1) __syncthreads();
  if (group > 0) return;
  for (int g = 1; g < kGroups; ++g) {
    const auto* const room = reinterpret_cast<const float*>(walk.stages + g * 2 * kStages) + index;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      key_sums[i / 4][i % 4] += room[i * kGroup];
      value_sums[i / 4][i % 4] += room[(kValues + i) * kGroup];
    }
  }
  turn_back<kDim>(key_sums, turned, rows, end);
  store_rows<kEach>(dk, begin, end, head, s.D, key_sums, s.scale, s.scale, keys, 0);
  store_rows<kEach>(dv, begin, end, head, s.D, value_sums, 1.0f, 1.0f, values, 0);
#endif
}

}  // namespace

void wgmma_query_gradient(Queue& q, const Tensor& dq, const Tensor& d_o, const Tensor& lse,
                          const Tensor& delta, const AttentionInputs& in) {
  const AttentionShape s = in.shape();
  const Order order = order_of(q, s.T, s.H);
  const auto launch = [&]<int kEach, int kDim>() {
    constexpr int kBytes = shared_bytes<kDim>(kQueryTiles);
    const auto kernel = query_gradient_kernel<kEach, kDim>;
    allow(kernel, kBytes);
    kernel<<<static_cast<unsigned>(order.tiles * order.heads), kGroup, kBytes, stream_of(q)>>>(
        heads<bf16_t>(dq), heads<bf16_t>(d_o), data<float>(lse), data<float>(delta),
        heads<bf16_t>(in.q), heads<bf16_t>(in.k), heads<bf16_t>(in.v), Visible(in.mask), s, order,
        TurnedBy(in.turned));
  };
  if (!with_copies(launch, s.D, dq, in.q, in.k, in.v, d_o)) {
    kMmaAttention.query_gradient(q, dq, d_o, lse, delta, in);
    if (in.turned) turn_back(q, dq, in.turned);
  }
  launched("attention's gradient of queries");
}

void wgmma_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                        const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  const AttentionShape s = in.shape();
  const Order order = order_of(q, s.T, in.k.dim(1));
  const auto launch = [&]<int kEach, int kDim, int kGroups>() {
    constexpr int kBytes = shared_bytes<kDim>(2 + 2 * kStages * kGroups);
    const auto kernel = key_gradient_kernel<kEach, kDim, kGroups>;
    allow(kernel, kBytes);
    kernel<<<static_cast<unsigned>(order.tiles * order.heads), kGroups * kGroup, kBytes,
             stream_of(q)>>>(heads<bf16_t>(dk), heads<bf16_t>(dv), heads<bf16_t>(d_o),
                             data<float>(lse), data<float>(delta), heads<bf16_t>(in.q),
                             heads<bf16_t>(in.k), heads<bf16_t>(in.v), Visible(in.mask), s, order,
                             TurnedBy(in.turned));
  };
  // Groups that need not add up their sums are faster, if they are many and none is long: heads
  // that share keys make long walks, and a group alone finds the longest of kGroup tiles at the
  // most.
  const bool many = s.group == 1 && order.tiles <= kGroup &&
                    order.tiles * order.heads >= 6 * q.cuda().multiprocessors();
  const auto choose = [&]<int kEach, int kDim>() {
    if (many)
      launch.template operator()<kEach, kDim, 1>();
    else
      launch.template operator()<kEach, kDim, kMostGroups<kDim>>();
  };
  if (!with_copies(choose, s.D, dk, dv, in.q, in.k, in.v, d_o)) {
    kMmaAttention.key_gradient(q, dk, dv, d_o, lse, delta, in);
    if (in.turned) turn_back(q, dk, in.turned);
  }
  launched("attention's gradient of keys");
}

}  // namespace capstan::cuda
