// Attention with a ring buffer: the gradients. Scores are recomputed from lse, once per tile of
// queries for dq and once per tile of keys for dk and dv, so that every sum has one owner and a
// fixed order, and no atomics are needed.
#include "ops/cuda/attention/attention_delta.cuh"
#include "ops/cuda/attention/attention_keys.cuh"
#include "ops/cuda/attention/attention_queries.cuh"
#include "ops/cuda/attention/attention_ring.cuh"

namespace capstan::cuda {
namespace {

// ---- dq ------------------------------------------------------------------------------------

// A group's own tiles are queries, gradients and outputs; it loops over keys and values.
using QueryBlock = RingBlock<3, 1, 3>;

// Also computes delta.
__global__ void __launch_bounds__(kRingThreads, 1) ring_query_gradient_kernel(
    Heads<bf16_t> dq, float* delta, const __grid_constant__ RingOperand d_o,
    const __grid_constant__ RingOperand o, const float* lse, const __grid_constant__ RingOperand q,
    const __grid_constant__ RingOperand k, const __grid_constant__ RingOperand v, Visible visible,
    const __grid_constant__ AttentionShape s, const __grid_constant__ Items items,
    RotatedBy rotated) {
#ifdef CAPSTAN_WGMMA_CODE
  using Block = QueryBlock;
  extern __shared__ unsigned char memory[];
  __shared__ Block block;
  RingTile* const tiles = tiles_of<kRingDim>(memory);
  const int group = group_of_warp();
  WorkItems work(items);
  if (!begin_queries(block, tiles, group, work, items, visible, s, {&q, &d_o, &o}, {&k, &v}))
    return;
  Block::OwnEnd own_ring(block.own_barriers);
  Block::End ring(block.barriers);
  const float scale = s.scale * kLog2e;
  for (; work.has(); work.next()) {
    own_ring.wait_until_full();
    const Walk walk(block.items[own_ring.stage()], group);
    const QueryRows rows(walk.begin, walk.earliest, walk.latest, visible, s.T);
    const int h = max(walk.head, 0);
    float log_sum[2], shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
      log_sum[r] = lse[int64_t{h} * s.T + min(rows.rows[r], s.T - 1)] * kLog2e;
    RingTile& d_o_tile = Block::own(tiles, own_ring.stage(), 1, group);
    OutputRows<true, kRingDim>(Block::own(tiles, own_ring.stage(), 2, group)).dot(shift, d_o_tile);
    RowFactors queries, gradients;
    load_factors(queries, Block::own(tiles, own_ring.stage(), 0, group));
    load_factors(gradients, d_o_tile);
    own_ring.leave(own_ring.stage());
    own_ring.next();
    int key = walk.first;
    if (walk.works(s.T)) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (threadIdx.x % 4 == 0 && rows.rows[r] < rows.end)
          delta[int64_t{h} * s.T + rows.rows[r]] = shift[r];
      for (; key + kTile <= rows.earliest; key += kTile) ring.pass();

      float sums[kRingDim / 8][4] = {};
      settled(sums);
      for (; key < rows.end; key += kTile) {
        ring.wait_until_full();
        add_query_gradients<kRingDim>(
            sums, queries, gradients, Block::walked(tiles, ring.stage(), 0),
            Block::walked(tiles, ring.stage(), 1), log_sum, shift, key, rows, scale, [] {});
        ring.leave(ring.stage());
        ring.next();
      }
      rotate_back<kRingDim>(sums, rotated, rows.rows, rows.end);
      store_rows(dq, rows.rows, rows.end, h, s.D, sums, s.scale, s.scale);
    }
    for (; key < walk.end; key += kTile) ring.pass();
  }
#endif
}

// ---- dk and dv -----------------------------------------------------------------------------

// A group's own tiles are keys and values; it loops over queries and gradients of all heads that
// share the keys, with numbers that all threads read.
using KeyBlock = RingBlock<2, 2, 2, Leave::by_thread>;

// The shape for keys: each key head is separate.
AttentionShape of_keys(AttentionShape s) {
  s.H /= s.group;
  s.group = 1;
  return s;
}

// `s` is of_keys.
__global__ void __launch_bounds__(kRingThreads, 1)
    ring_key_gradient_kernel(Heads<bf16_t> dk, Heads<bf16_t> dv,
                             const __grid_constant__ RingOperand d_o, const float* lse,
                             const float* delta, const __grid_constant__ RingOperand q,
                             const __grid_constant__ RingOperand k,
                             const __grid_constant__ RingOperand v, Visible visible,
                             const __grid_constant__ AttentionShape s, int heads_that_share,
                             const __grid_constant__ Items items, RotatedBy rotated) {
#ifdef CAPSTAN_WGMMA_CODE
  using Block = KeyBlock;
  extern __shared__ unsigned char memory[];
  __shared__ Block block;
  __shared__ alignas(8) float numbers[Block::kWalkedStages][2][kTile];  // lse, delta
  RingTile* const tiles = tiles_of<kRingDim>(memory);
  block.make_barriers(1 + kGroup);
  const auto last_of = [&](int end) { return visible.last(min(end, s.T) - 1); };
  block.places.sort(visible, items.places,
                    [&](int place) { return last_of(items.end(place, s.T)) - items.begin(place); });
  const int group = group_of_warp();
  WorkItems work(items);
  if (group == kRingGroups) {
    give_registers<40>();
    const auto item_of = [&](int i) {
      return item_of_keys(items, block.places, i, visible, s.T, heads_that_share);
    };
    // Each thread has one of the numbers.
    const int index = static_cast<int>(threadIdx.x) % kTile;
    const int which = static_cast<int>(threadIdx.x) % kGroup / kTile;
    const float* const source = which == 0 ? lse : delta;
    const auto load_numbers = [&](int stage, int query, int head, uint32_t full) {
      copy_ahead<4>(shared_address(&numbers[stage][which][index]),
                    source + int64_t{head} * s.T + min(query + index, s.T - 1));
      arrive_when_copied(full);
    };
    produce_items(block, tiles, work, item_of, {&k, &v}, {&q, &d_o}, load_numbers);
    return;
  }
  take_registers<40>();
  Block::OwnEnd own_ring(block.own_barriers);
  Block::End ring(block.barriers);
  const float scale = s.scale * kLog2e;
  for (; work.has(); work.next()) {
    own_ring.wait_until_full();
    const Walk walk(block.items[own_ring.stage()], group);
    // Queries before `earliest` see the first key, those before `latest` the last.
    const int begin = walk.begin, earliest = walk.earliest, latest = walk.latest;
    const int end = min(begin + kTile, s.T);
    KeyRows rows = {begin, earliest, {begin + row_of(0), begin + row_of(2)}, {latest, latest}};
    if (earliest != latest)
#pragma unroll
      for (int r = 0; r < 2; ++r) rows.last[r] = visible.last(min(rows.rows[r], s.T - 1));
    const RingTile& keys = Block::own(tiles, own_ring.stage(), 0, group);
    const RingTile& values = Block::own(tiles, own_ring.stage(), 1, group);

    float key_sums[kRingDim / 8][4] = {}, value_sums[kRingDim / 8][4] = {};
    settled(key_sums);  // zero here: ptxas would serialize products whose sums start between them
    settled(value_sums);
    // The tiles that both groups loop over; this group skips some or all of them.
    int left = heads_that_share * ((walk.end - walk.first + kTile - 1) / kTile);
    int query = walk.first;
    const auto next = [&] {
      --left;
      query += kTile;
      if (query >= walk.end) query = walk.first;
    };
    int before = -1;  // the stage that products may still read
    const auto leave = [&] {
      finish_products<0>();
      if (before >= 0) ring.leave(before);
      before = -1;
    };
    const auto find = [&] {
      while (left > 0 && (query < begin || query >= latest)) {
        leave();  // the producer may wait for it
        ring.pass();
        next();
      }
      return left > 0;
    };
    for (; find(); next()) {
      ring.wait_until_full();
      leave();
      const int stage = ring.stage();
      const RingTile &queries = Block::walked(tiles, stage, 0),
                     &gradients = Block::walked(tiles, stage, 1);
      add_key_gradients<kRingDim>(key_sums, value_sums, keys, values, queries, gradients,
                                  numbers[stage][0], numbers[stage][1], query, rows, scale, [] {});
      before = stage;
      ring.next();
    }
    leave();
    settled(key_sums);
    settled(value_sums);
    own_ring.leave(own_ring.stage());
    own_ring.next();
    if (begin < s.T) {
      rotate_back<kRingDim>(key_sums, rotated, rows.rows, end);
      store_rows(dk, rows.rows, end, walk.head, s.D, key_sums, s.scale, s.scale);
      store_rows(dv, rows.rows, end, walk.head, s.D, value_sums, 1.0f, 1.0f);
    }
  }
#endif
}

}  // namespace

bool ring_query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                         const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  const AttentionShape s = in.shape();
  RingOperand tiles[5];
  if (!make_ring_operands(tiles, {d_o, o, in.q, in.k, in.v}, s.D, {dq})) return false;
  const Items items = Items::of(q, s);
  allow(ring_query_gradient_kernel, QueryBlock::kBytes);
  ring_query_gradient_kernel<<<items.blocks(q), kRingThreads, QueryBlock::kBytes, stream_of(q)>>>(
      heads<bf16_t>(dq), data<float>(delta), tiles[0], tiles[1], data<float>(lse), tiles[2],
      tiles[3], tiles[4], Visible(in.mask), s, items, RotatedBy(in.rotated));
  return true;
}

bool ring_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                       const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  const AttentionShape s = in.shape();
  const Items items = Items::of(q, of_keys(s));
  RingOperand tiles[4];
  // With few work items some SMs would idle: other kernels split the queries instead.
  if (items.count() < q.cuda().multiprocessors() ||
      !make_ring_operands(tiles, {d_o, in.q, in.k, in.v}, s.D, {dk, dv}))
    return false;
  allow(ring_key_gradient_kernel, KeyBlock::kBytes);
  ring_key_gradient_kernel<<<items.blocks(q), kRingThreads, KeyBlock::kBytes, stream_of(q)>>>(
      heads<bf16_t>(dk), heads<bf16_t>(dv), tiles[0], data<float>(lse), data<float>(delta),
      tiles[1], tiles[2], tiles[3], Visible(in.mask), of_keys(s), s.group, items,
      RotatedBy(in.rotated));
  return true;
}

}  // namespace capstan::cuda
