// Attention with a ring buffer: the forward pass.
#include "ops/cuda/attention/attention_ring.cuh"
#include "ops/cuda/attention/attention_softmax.cuh"

namespace capstan::cuda {
namespace {

// A group's own tile is queries; it loops over keys and values.
using ForwardBlock = RingBlock<1, 1, 5>;

// While the scores of one tile of keys become probabilities, those of the previous tile are
// multiplied by their values.
__global__ void __launch_bounds__(kRingThreads, 1)
    ring_attention_kernel(Heads<bf16_t> o, float* lse, const __grid_constant__ RingOperand q,
                          const __grid_constant__ RingOperand k,
                          const __grid_constant__ RingOperand v, Visible visible,
                          const __grid_constant__ AttentionShape s,
                          const __grid_constant__ Items items) {
#ifdef CAPSTAN_WGMMA_CODE
  using Block = ForwardBlock;
  extern __shared__ unsigned char memory[];
  __shared__ Block block;
  RingTile* const tiles = tiles_of<kRingDim>(memory);
  const int group = group_of_warp();
  WorkItems work(items);
  if (!begin_queries(block, tiles, group, work, items, visible, s, {&q}, {&k, &v})) return;
  Block::OwnEnd own_ring(block.own_barriers);
  Block::End ring(block.barriers);
  const float scale = s.scale * kLog2e;
  for (; work.has(); work.next()) {
    own_ring.wait_until_full();
    const Walk walk(block.items[own_ring.stage()], group);
    RowFactors queries;
    load_factors(queries, Block::own(tiles, own_ring.stage(), 0, group));
    own_ring.leave(own_ring.stage());
    own_ring.next();
    int key = walk.first;
    if (walk.works(s.T)) {
      const QueryRows rows(walk.begin, walk.earliest, walk.latest, visible, s.T);
      const int h = walk.head;
      float out[kRingDim / 8][4] = {}, scores[kColumns][4];
      Softmax softmax[2];
      Factors factors;
      for (; key + kTile <= rows.earliest; key += kTile) ring.pass();
      ring.wait_until_full();
      begin_products();
      multiply_rows(scores, queries, Block::walked(tiles, ring.stage(), 0));
      end_products();
      finish_products<0>();
      settled(scores);
      rows.hide(scores, key, -INFINITY);
      softmax[0].take(0, scores, scale);
      softmax[1].take(1, scores, scale);
      to_factors(factors, scores);
      settled(out);
      int before = ring.stage();
      ring.next();
      for (key += kTile; key < rows.end; key += kTile) {
        ring.wait_until_full();
        begin_products();
        multiply_rows(scores, queries, Block::walked(tiles, ring.stage(), 0));
        end_products();
        multiply_columns<kRingDim>(out, factors, Block::walked(tiles, before, 1));
        end_products();
        finish_products<1>();
        settled(scores);
        rows.hide(scores, key, -INFINITY);
        const float shrink[2] = {softmax[0].take(0, scores, scale),
                                 softmax[1].take(1, scores, scale)};
        // Most tiles of a long loop have no new maximum for any row of the warp. Without the
        // branch, ptxas would move the wait before all of the above.
        if (__any_sync(0xffffffff, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
          finish_products<0>();
          settled(out);
#pragma unroll
          for (int j = 0; j < kRingDim / 8; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) out[j][i] *= shrink[i / 2];
        }
        finish_products<0>();
        settled(out);
        ring.leave(before);
        to_factors(factors, scores);
        before = ring.stage();
        ring.next();
      }
      begin_products();
      multiply_columns<kRingDim>(out, factors, Block::walked(tiles, before, 1));
      end_products();
      finish_products<0>();
      settled(out);
      ring.leave(before);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        softmax[r].sum = row_sum(softmax[r].sum);
        if (threadIdx.x % 4 == 0 && rows.rows[r] < rows.end)
          lse[int64_t{h} * s.T + rows.rows[r]] = softmax[r].lse(s.scale);
      }
      store_rows(o, rows.rows, rows.end, h, s.D, out, 1.0f / softmax[0].sum, 1.0f / softmax[1].sum);
    }
    for (; key < walk.end; key += kTile) ring.pass();
  }
#endif
}

}  // namespace

bool ring_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  const AttentionShape s = in.shape();
  RingOperand tiles[3];
  if (!make_ring_operands(tiles, {in.q, in.k, in.v}, s.D, {o})) return false;
  const Items items = Items::of(q, s);
  allow(ring_attention_kernel, ForwardBlock::kBytes);
  ring_attention_kernel<<<items.blocks(q), kRingThreads, ForwardBlock::kBytes, stream_of(q)>>>(
      heads<bf16_t>(o), data<float>(lse), tiles[0], tiles[1], tiles[2], Visible(in.mask), s, items);
  return true;
}

}  // namespace capstan::cuda
