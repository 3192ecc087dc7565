// Attention by wgmma. Forward: a group of four warps has a tile of queries of one head and loops
// over the tiles of keys, with an online softmax (Dao et al., 2022).
#include "ops/cuda/attention/attention_wgmma.cuh"

#include "ops/cuda/attention/attention_softmax.cuh"

namespace capstan::cuda {
namespace {

// Tiles of queries, keys and values in shared memory.
constexpr int kForwardTiles = 1 + 2 * kSteps;

// While the scores of one tile of keys become probabilities, those of the previous tile are
// multiplied by their values.
template <bool kBoxes, int kDim>
__global__ void __launch_bounds__(kGroup, kDim == 64 ? 4 : 2)
    attention_kernel(Heads<bf16_t> o, float* lse, const __grid_constant__ Operand<kBoxes> q,
                     const __grid_constant__ Operand<kBoxes> k,
                     const __grid_constant__ Operand<kBoxes> v, Visible visible, AttentionShape s,
                     Order order) {
#ifdef CAPSTAN_WGMMA_CODE
  extern __shared__ unsigned char memory[];
  __shared__ Finder finder;
  __shared__ int firsts[kTile];
  __shared__ uint64_t barriers[2][2];
  Tile<kDim>* const tiles = tiles_of<kDim>(memory);
  const int h = order.head(), key_head = h / s.group;
  const int thread = static_cast<int>(threadIdx.x);
  const Arrivals<kBoxes, kDim> key_arrivals{shared_address(barriers[0]), s.T, s.D, thread,
                                            thread == 0};
  const Arrivals<kBoxes, kDim> value_arrivals{shared_address(barriers[1]), s.T, s.D, thread,
                                              thread == 0};
  key_arrivals.make();
  value_arrivals.make();
  finder.fetch(visible);
  const QueryRows rows(tile_of_queries(finder, order, visible, s.T), visible, s.T, firsts);
  const KeyWalk walk{rows.earliest / kTile * kTile, rows.end};
  Tile<kDim>& queries = tiles[0];
  const auto keys = [&](int step) -> Tile<kDim>& { return tiles[1 + step % kSteps]; };
  const auto values = [&](int step) -> Tile<kDim>& { return tiles[1 + kSteps + step % kSteps]; };
  const auto ask_for_keys = [&](int step) {
    if (!walk.has(step)) return;
    key_arrivals.begin(step, step == 0 ? 2 : 1);
    key_arrivals.ask(step, keys(step), k, walk.key(step), key_head);
    if (step == 0) key_arrivals.ask(0, queries, q, rows.begin, h);
    key_arrivals.end();
  };
  const auto ask_for_values = [&](int step) {
    if (!walk.has(step)) return;
    value_arrivals.begin(step, 1);
    value_arrivals.ask(step, values(step), v, walk.key(step), key_head);
    value_arrivals.end();
  };
  ask_for_keys(0);
  ask_for_values(0);
  ask_for_keys(1);

  float out[kDim / 8][4] = {}, scores[kColumns][4];
  Softmax softmax[2];
  Factors factors;
  const float scale = s.scale * kLog2e;
  key_arrivals.wait(0);
  __syncthreads();
  begin_products();
  multiply_rows(scores, queries, keys(0));
  end_products();
  finish_products<0>();
  settled(scores);
  rows.hide(scores, walk.first, -INFINITY);
  softmax[0].take(0, scores, scale);
  softmax[1].take(1, scores, scale);
  to_factors(factors, scores);
  settled(out);
  int step = 0;
  for (; walk.has(step + 1); ++step) {
    key_arrivals.wait(step + 1);
    __syncthreads();  // the products of the previous step are done, in all warps
    ask_for_values(step + 1);
    begin_products();
    multiply_rows(scores, queries, keys(step + 1));
    end_products();
    if constexpr (kBoxes) value_arrivals.wait(step);  // copies have arrived before the keys
    begin_products();
    multiply_columns<kDim>(out, factors, values(step));
    end_products();
    ask_for_keys(step + 2);
    finish_products<1>();
    settled(scores);
    rows.hide(scores, walk.key(step + 1), -INFINITY);
    const float shrink[2] = {softmax[0].take(0, scores, scale), softmax[1].take(1, scores, scale)};
    finish_products<0>();
    settled(out);
    // Most tiles of a long loop have no new maximum for any row of the warp.
    if (__any_sync(0xffffffff, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[j][i] *= shrink[i / 2];
    }
    to_factors(factors, scores);
  }
  value_arrivals.wait(step);
  if constexpr (!kBoxes) __syncthreads();
  begin_products();
  multiply_columns<kDim>(out, factors, values(step));
  end_products();
  finish_products<0>();
  settled(out);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    softmax[r].sum = row_sum(softmax[r].sum);
    if (threadIdx.x % 4 == 0 && rows.rows[r] < rows.end)
      lse[int64_t{h} * s.T + rows.rows[r]] = softmax[r].lse(s.scale);
  }
  store_rows<kBoxes>(o, rows.begin, rows.end, h, s.D, out, 1.0f / softmax[0].sum,
                     1.0f / softmax[1].sum, queries);
#endif
}

}  // namespace

void wgmma_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  if (ring_attention(q, o, lse, in)) return launched("attention");
  const AttentionShape s = in.shape();
  const Order order = order_of(q, s.T, s.H);
  const auto launch = [&]<bool kBoxes, int kDim>(const Operand<kBoxes>(&tiles)[3]) {
    constexpr int kBytes = shared_bytes<kDim>(kForwardTiles);
    const auto kernel = attention_kernel<kBoxes, kDim>;
    allow(kernel, kBytes);
    kernel<<<static_cast<unsigned>(order.tiles * order.heads), kGroup, kBytes, stream_of(q)>>>(
        heads<bf16_t>(o), data<float>(lse), tiles[0], tiles[1], tiles[2], Visible(in.mask), s,
        order);
  };
  if (!with_operands<false>(s.D, {o}, {in.q, in.k, in.v}, launch))
    kMmaAttention.forward(q, o, lse, in);
  launched("attention");
}

// Every GPU with wgmma has enough shared memory for all of them.
const AttentionKernels kWgmmaAttention = {wgmma_attention, wgmma_query_gradient, wgmma_key_gradient,
                                          [](int64_t) { return SharedBytes{}; }, true};

}  // namespace capstan::cuda
