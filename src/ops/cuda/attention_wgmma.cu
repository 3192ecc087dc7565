// Attention by wgmma. Forward: a group of four warps has a tile of queries of one head and walks
// over the tiles of keys, with the running maximum and sum of a softmax (Dao et al., 2022).
#include "ops/cuda/attention_wgmma.cuh"

namespace capstan::cuda {
namespace {

// Over the four lanes that share a row.
__device__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}
__device__ float row_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// A row's running softmax, in base 2.
struct Softmax {
  float most = -INFINITY, sum = 0;

  // Row r of the thread's scores becomes probabilities. What earlier ones made is to be multiplied
  // by the result.
  __device__ float take(int r, float (&scores)[kColumns][4], float scale) {
    float high = most;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      high = fmaxf(high, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
    high = row_max(high);
    // A row may have seen no key yet: nothing is subtracted from nothing.
    const float shift = high == -INFINITY ? 0.0f : high * scale;
    const float shrink = exp2_of(most * scale - shift);
    most = high;
    sum *= shrink;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        scores[j][i] = exp2_of(fmaf(scores[j][i], scale, -shift));
        sum += scores[j][i];
      }
    return shrink;
  }
};

// Groups of a block, which share its tiles of keys and values. Channels of 128 leave registers for
// three groups in a multiprocessor, and shared memory for those of one block. Of 64 there is room
// for four blocks, whose groups then need not wait for each other.
template <int kDim>
constexpr int kForwardGroups = kDim == 64 ? 1 : 3;
template <int kDim>
constexpr int kForwardTiles = kForwardGroups<kDim> + 2 * kStages;

// While scores of one tile of keys become probabilities, those of the tile before are multiplied by
// their values.
template <int kEach, int kDim>
__global__ void __launch_bounds__(kForwardGroups<kDim>* kGroup, kDim == 64 ? 4 : 1)
    attention_kernel(Heads<bf16_t> o, float* lse, Heads<bf16_t> q, Heads<bf16_t> k, Heads<bf16_t> v,
                     Visible visible, AttentionShape s, Order order) {
#ifdef CAPSTAN_WGMMA_CODE
  constexpr int kGroups = kForwardGroups<kDim>;
  extern __shared__ unsigned char memory[];
  __shared__ Finder finder;
  __shared__ int firsts[kGroups][kTile];
  Tile<kDim>* const tiles = tiles_of<kDim>(memory);
  // The same in all lanes of a warp, as the compiler should know.
  const int group =
      kGroups == 1 ? 0 : __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / kGroup, 0);
  const int h = order.head();
  finder.fetch(visible);
  const int tile = tile_of_queries<kGroups>(finder, order, visible, s.T);
  const QueryRows rows(tile + group, visible, s.T, firsts[group]);
  Tile<kDim>& queries = tiles[group];
  fill<kEach>(queries, q, rows.begin, rows.end, h, s.D, static_cast<int>(threadIdx.x) % kGroup);
  const KeyWalk<kEach, kDim> walk{tiles + kGroups,
                                  k,
                                  v,
                                  h / s.group,
                                  firsts[0][0] / kTile * kTile,
                                  min((tile + kGroups) * kTile, s.T),
                                  s.T,
                                  s.D};
  if (group == 0) walk.fill_keys(0);
  end_group();
  // What groups fill in a step: values of the next one, keys of the one after that.
  const auto fill_ahead = [&](int step) {
    if (group == 0) walk.fill_keys(step + 2);
    if (group == (kGroups > 1 ? 1 : 0)) walk.fill_values(step + 1);
    end_group();
  };
  fill_ahead(-1);

  float out[kDim / 8][4] = {}, scores[kColumns][4];
  Softmax softmax[2];
  Factors factors;
  const float scale = s.scale * kLog2e;
  const auto hide = [&](int key) {
    if (!rows.cuts(key)) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!rows.sees(i, key + column_of(j, i))) scores[j][i] = -INFINITY;
  };
  finish_groups<1>();
  __syncthreads();
  // Groups meet in every step of the block's walk: in those before the first key that this one
  // sees, and after the last, it fills tiles for the others.
  int step = 0, key = walk.first;
  const auto serve = [&](int end) {
    for (; key < end; ++step, key += kTile) {
      finish_groups<0>();
      __syncthreads();
      fill_ahead(step);
    }
  };
  serve(rows.earliest / kTile * kTile);
  begin_products();
  multiply_rows(scores, queries, walk.keys(step));
  end_products();
  finish_products<0>();
  settled(scores);
  hide(key);
  softmax[0].take(0, scores, scale);
  softmax[1].take(1, scores, scale);
  to_factors(factors, scores);
  settled(out);
  for (key += kTile; key < rows.end; ++step, key += kTile) {
    finish_groups<0>();
    __syncthreads();  // the products of the step before are done, in all warps
    begin_products();
    multiply_rows(scores, queries, walk.keys(step + 1));
    end_products();
    multiply_columns<kDim>(out, factors, walk.values(step));
    end_products();
    fill_ahead(step);
    finish_products<1>();
    settled(scores);
    hide(key);
    const float shrink[2] = {softmax[0].take(0, scores, scale), softmax[1].take(1, scores, scale)};
    finish_products<0>();
    settled(out);
    // Most tiles of a long walk have no new maximum for any row of the warp.
    if (__any_sync(0xffffffff, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[j][i] *= shrink[i / 2];
    }
    to_factors(factors, scores);
  }
  finish_groups<0>();
  __syncthreads();
  begin_products();
  multiply_columns<kDim>(out, factors, walk.values(step));
  end_products();
  fill_ahead(step);
  finish_products<0>();
  settled(out);
  ++step;
  serve(walk.end);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    softmax[r].sum = row_sum(softmax[r].sum);
    if (threadIdx.x % 4 == 0 && rows.rows[r] < rows.end)
      lse[int64_t{h} * s.T + rows.rows[r]] = softmax[r].most * s.scale + logf(softmax[r].sum);
  }
  store_rows<kEach>(o, rows.begin, rows.end, h, s.D, out, 1.0f / softmax[0].sum,
                    1.0f / softmax[1].sum, queries, group);
#endif
}

}  // namespace

void wgmma_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  const AttentionShape s = in.shape();
  const auto launch = [&]<int kEach, int kDim>() {
    constexpr int kGroups = kForwardGroups<kDim>, kBytes = shared_bytes<kDim>(kForwardTiles<kDim>);
    const Order order = order_of(q, s.T, s.H, kGroups);
    const auto kernel = attention_kernel<kEach, kDim>;
    allow(kernel, kBytes);
    kernel<<<static_cast<unsigned>(order.tiles * order.heads), kGroups * kGroup, kBytes,
             stream_of(q)>>>(heads<bf16_t>(o), data<float>(lse), heads<bf16_t>(in.q),
                             heads<bf16_t>(in.k), heads<bf16_t>(in.v), Visible(in.mask), s, order);
  };
  if (!with_copies(launch, s.D, o, in.q, in.k, in.v)) kMmaAttention.forward(q, o, lse, in);
  launched("attention");
}

const AttentionKernels kWgmmaAttention = {wgmma_attention, wgmma_query_gradient, wgmma_key_gradient,
                                          true};

}  // namespace capstan::cuda
