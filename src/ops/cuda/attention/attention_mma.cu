// Attention in tiles of 64 queries by 64 keys, on the tensor cores of any GPU (mma.m16n8k16, bf16
// with f32 sums).
//
// Forward: a block has one tile of queries of one head and loops over the tiles of keys, with an
// online softmax (Dao et al., 2022). Backward: scores are recomputed from lse, once per tile of
// queries for dq and once per tile of keys for dk and dv, so that every sum has one owner and a
// fixed order, and no atomics are needed.
//
// A warp has 16 rows of the tile.
#include "ops/cuda/attention/attention_rows.cuh"
#include "ops/cuda/attention/attention_softmax.cuh"
#include "ops/cuda/product/mma.cuh"

namespace capstan::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;

__device__ int first_row() {  // of the warp, in the tile
  return static_cast<int>(threadIdx.x) / 32 * 16;
}

// 64 rows of kDim channels in shared memory. Rows are padded by 16 bytes, so that eight rows read
// at one column are in different banks.
template <int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;
  bf16_t values[kTile * kStride];

  __device__ const bf16_t* at(int row, int column) const { return values + row * kStride + column; }

  // Rows begin … begin + 63 of a head; rows from `end` on and channels from D on are zeros. Part of
  // it arrives only at finish_fills.
  __device__ void fill(Heads<bf16_t> from, int begin, int end, int head, int D, bool wide) {
    if (wide) {
      // Asynchronously, 16 bytes at a time; nothing is read for zeros.
      constexpr int kPacks = kDim / 8;
#pragma unroll
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kThreads) {
        const int row = i / kPacks, column = i % kPacks * 8;
        const bool there = begin + row < end && column < D;
        const bf16_t* const source = there ? from.at(begin + row, head) + column : from.data;
        copy_ahead<16>(shared_address(values + row * kStride + column), source, there);
      }
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < kTile * kDim; i += kThreads) {
        const int row = i / kDim, column = i % kDim;
        values[row * kStride + column] = begin + row < end && column < D
                                             ? from.at(begin + row, head)[column]
                                             : from_float<bf16_t>(0);
      }
    }
  }
};

// Waits until all but the last kLater groups of fills have arrived, for all threads.
template <int kLater>
__device__ void finish_fills() {
  finish_copies<kLater>();
  __syncthreads();
}

// A pair of tiles, keys and values from `key` on, as a group; none if that is past `end`.
template <int kDim>
__device__ void fill_keys(Tile<kDim>* pair, Heads<bf16_t> k, Heads<bf16_t> v, int key, int end,
                          int head, const AttentionShape& s, bool wide) {
  if (key < end) {
    pair[0].fill(k, key, s.T, head, s.D, wide);
    pair[1].fill(v, key, s.T, head, s.D, wide);
  }
  end_group();
}

// The warp's 16 rows of a tile, 16 channels from `column` on, as a left factor.
template <int kDim>
__device__ void load_rows(uint32_t (&a)[4], const Tile<kDim>& tile, int column) {
  load_matrices(a, tile.at(first_row() + lane() % 16, column + lane() / 16 * 8));
}

// scores[j] += rows of `left` · rows of `right`, over all channels: [16, 64] for the warp.
template <int kDim>
__device__ void multiply_rows(float (&scores)[kColumns][4], const Tile<kDim>& left,
                              const Tile<kDim>& right) {
#pragma unroll
  for (int c = 0; c < kDim; c += 16) {
    uint32_t a[4];
    load_rows(a, left, c);
#pragma unroll
    for (int j = 0; j < kColumns; j += 2) {
      uint32_t b[4];
      load_matrices(b, right.at(8 * j + lane() % 8 + lane() / 16 * 8, c + lane() / 8 % 2 * 8));
      multiply(scores[j], a, b[0], b[1]);
      multiply(scores[j + 1], a, b[2], b[3]);
    }
  }
}

__device__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// sums += factors · tile, with the warp's [16, 64] factors rounded to bf16: [16, kDim].
template <int kDim>
__device__ void multiply_columns(float (&sums)[kDim / 8][4], const float (&factors)[kColumns][4],
                                 const Tile<kDim>& tile) {
#pragma unroll
  for (int k = 0; k < kTile; k += 16) {
    const auto &low = factors[k / 8], &high = factors[k / 8 + 1];
    const uint32_t a[4] = {pack(low[0], low[1]), pack(low[2], low[3]), pack(high[0], high[1]),
                           pack(high[2], high[3])};
#pragma unroll
    for (int j = 0; j < kDim / 8; j += 2) {
      uint32_t b[4];
      load_matrices_flipped(b, tile.at(k + lane() % 16, 8 * j + lane() / 16 * 8));
      multiply(sums[j], a, b[0], b[1]);
      multiply(sums[j + 1], a, b[2], b[3]);
    }
  }
}

template <int kDim>
__device__ void store_rows(Heads<bf16_t> to, int begin, int end, int head, int D,
                           const float (&sums)[kDim / 8][4], float low_factor, float high_factor) {
#pragma unroll
  for (int j = 0; j < kDim / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = begin + row_of(i), column = column_of(j, i);
      if (row < end && column < D)
        to.at(row, head)[column] =
            from_float<bf16_t>(sums[j][i] * (i < 2 ? low_factor : high_factor));
    }
}

// The last tiles see the most keys, so they start first.
__device__ int last_tile_first() {
  return static_cast<int>(gridDim.x - 1 - blockIdx.x);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(Heads<bf16_t> o, float* lse, Heads<bf16_t> q, Heads<bf16_t> k, Heads<bf16_t> v,
                     Visible visible, AttentionShape s, bool wide) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const tiles = reinterpret_cast<Tile<kDim>*>(memory);
  Tile<kDim>& queries = tiles[0];  // then keys and values, double-buffered
  __shared__ int firsts[kTile];
  const QueryRows rows(last_tile_first(), visible, s.T, firsts);
  const int h = static_cast<int>(blockIdx.y);
  queries.fill(q, rows.begin, rows.end, h, s.D, wide);

  float out[kDim / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  const int first_key = rows.earliest / kTile * kTile;
  const auto fill = [&](int key, int stage) {
    fill_keys(&tiles[1 + 2 * stage], k, v, key, rows.end, h / s.group, s, wide);
  };
  fill(first_key, 0);
  for (int key = first_key, stage = 0; key < rows.end; key += kTile, stage ^= 1) {
    fill(key + kTile, stage ^ 1);
    finish_fills<1>();
    const Tile<kDim>&keys = tiles[1 + 2 * stage], &values = tiles[2 + 2 * stage];
    float scores[kColumns][4] = {};
    multiply_rows(scores, queries, keys);
    rows.hide(scores, key, -INFINITY);
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float high = most[r];
#pragma unroll
      for (int j = 0; j < kColumns; ++j)
        high = fmaxf(high, fmaxf(scores[j][2 * r], scores[j][2 * r + 1]));
      high = row_max(high);
      // A row may have seen no key yet: avoid -inf minus -inf.
      shift[r] = high == -INFINITY ? 0.0f : high * s.scale * kLog2e;
      // Rounded like `shift`: exactly 1 if the maximum is unchanged.
      const float shrink = exp2f(__fmul_rn(most[r] * s.scale, kLog2e) - shift[r]);
      most[r] = high;
      sum[r] *= shrink;
#pragma unroll
      for (int j = 0; j < kDim / 8; ++j) {
        out[j][2 * r] *= shrink;
        out[j][2 * r + 1] *= shrink;
      }
    }
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[j][i] = exp2f(scores[j][i] * s.scale * kLog2e - shift[i / 2]);
        sum[i / 2] += scores[j][i];
      }
    multiply_columns<kDim>(out, scores, values);
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = row_sum(sum[r]);
    if (lane() % 4 == 0 && rows.rows[r] < rows.end)
      lse[int64_t{h} * s.T + rows.rows[r]] = most[r] * s.scale + logf(sum[r]);
  }
  store_rows<kDim>(o, rows.begin, rows.end, h, s.D, out, 1.0f / sum[0], 1.0f / sum[1]);
}

template <int kDim>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(Heads<bf16_t> dq, Heads<bf16_t> d_o, const float* lse, const float* delta,
                          Heads<bf16_t> q, Heads<bf16_t> k, Heads<bf16_t> v, Visible visible,
                          AttentionShape s, bool wide) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const tiles = reinterpret_cast<Tile<kDim>*>(memory);
  Tile<kDim>&queries = tiles[0], &gradients = tiles[1];  // then keys and values, double-buffered
  __shared__ int firsts[kTile];
  const QueryRows rows(last_tile_first(), visible, s.T, firsts);
  const int h = static_cast<int>(blockIdx.y);
  queries.fill(q, rows.begin, rows.end, h, s.D, wide);
  gradients.fill(d_o, rows.begin, rows.end, h, s.D, wide);
  float log_sum[2], shift[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t at = int64_t{h} * s.T + min(rows.rows[r], s.T - 1);
    log_sum[r] = lse[at] * kLog2e;
    shift[r] = delta[at];
  }
  float sums[kDim / 8][4] = {};
  const int first_key = rows.earliest / kTile * kTile;
  const auto fill = [&](int key, int stage) {
    fill_keys(&tiles[2 + 2 * stage], k, v, key, rows.end, h / s.group, s, wide);
  };
  fill(first_key, 0);
  for (int key = first_key, stage = 0; key < rows.end; key += kTile, stage ^= 1) {
    fill(key + kTile, stage ^ 1);
    finish_fills<1>();
    const Tile<kDim>&keys = tiles[2 + 2 * stage], &values = tiles[3 + 2 * stage];
    float scores[kColumns][4] = {}, d[kColumns][4] = {};
    multiply_rows(scores, queries, keys);
    multiply_rows(d, gradients, values);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool seen = rows.sees(i, key + column_of(j, i));
        const float p = exp2f(scores[j][i] * s.scale * kLog2e - log_sum[i / 2]);
        d[j][i] = seen ? s.scale * p * (d[j][i] - shift[i / 2]) : 0.0f;
      }
    multiply_columns<kDim>(sums, d, keys);
    __syncthreads();
  }
  store_rows<kDim>(dq, rows.begin, rows.end, h, s.D, sums, 1.0f, 1.0f);
}

// Scores are computed transposed, so that the warp's rows are keys.
template <int kDim>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(Heads<bf16_t> dk, Heads<bf16_t> dv, Heads<bf16_t> d_o, const float* lse,
                        const float* delta, Heads<bf16_t> q, Heads<bf16_t> k, Heads<bf16_t> v,
                        Visible visible, AttentionShape s, bool wide) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const tiles = reinterpret_cast<Tile<kDim>*>(memory);
  Tile<kDim>&keys = tiles[0], &values = tiles[1];  // then queries and gradients, double-buffered
  __shared__ int lasts[kTile];
  __shared__ float log_sums[2][kTile], shifts[2][kTile];
  const int begin = static_cast<int>(blockIdx.x) * kTile, head = static_cast<int>(blockIdx.y);
  const int end = min(begin + kTile, s.T);
  if (threadIdx.x < kTile)
    lasts[threadIdx.x] = visible.last(min(begin + static_cast<int>(threadIdx.x), s.T - 1));
  keys.fill(k, begin, end, head, s.D, wide);
  values.fill(v, begin, end, head, s.D, wide);
  __syncthreads();
  const int rows[2] = {begin + row_of(0), begin + row_of(2)};
  const int last[2] = {lasts[row_of(0)], lasts[row_of(2)]};
  const int latest = lasts[end - 1 - begin];
  float key_sums[kDim / 8][4] = {}, value_sums[kDim / 8][4] = {};
  // All tiles of queries of all heads of the group, one after the other.
  const int per_head = (latest - begin + kTile - 1) / kTile, count = per_head * s.group;
  const auto fill = [&](int i, int stage) {
    if (i < count) {
      const int h = head * s.group + i / per_head, query = begin + i % per_head * kTile;
      tiles[2 + 2 * stage].fill(q, query, s.T, h, s.D, wide);
      tiles[3 + 2 * stage].fill(d_o, query, s.T, h, s.D, wide);
      if (threadIdx.x < kTile) {
        const int64_t at = int64_t{h} * s.T + min(query + static_cast<int>(threadIdx.x), s.T - 1);
        log_sums[stage][threadIdx.x] = lse[at] * kLog2e;
        shifts[stage][threadIdx.x] = delta[at];
      }
    }
    end_group();
  };
  fill(0, 0);
  for (int i = 0, stage = 0; i < count; ++i, stage ^= 1) {
    const int query = begin + i % per_head * kTile;
    fill(i + 1, stage ^ 1);
    finish_fills<1>();
    const Tile<kDim>&queries = tiles[2 + 2 * stage], &gradients = tiles[3 + 2 * stage];
    float p[kColumns][4] = {}, d[kColumns][4] = {};
    multiply_rows(p, keys, queries);
    multiply_rows(d, values, gradients);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int f = 0; f < 4; ++f) {
        const int column = column_of(j, f), at = query + column;
        const bool seen = at >= rows[f / 2] && at < last[f / 2];
        p[j][f] = seen ? exp2f(p[j][f] * s.scale * kLog2e - log_sums[stage][column]) : 0.0f;
        d[j][f] = s.scale * p[j][f] * (d[j][f] - shifts[stage][column]);
      }
    multiply_columns<kDim>(value_sums, p, gradients);
    multiply_columns<kDim>(key_sums, d, queries);
    __syncthreads();
  }
  store_rows<kDim>(dk, begin, end, head, s.D, key_sums, 1.0f, 1.0f);
  store_rows<kDim>(dv, begin, end, head, s.D, value_sums, 1.0f, 1.0f);
}

constexpr int kForwardTiles = 5, kBackwardTiles = 6;

void forward(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  const dim3 grid(static_cast<unsigned>(blocks_for(in.q.dim(0), kTile)),
                  static_cast<unsigned>(in.q.dim(1)));
  const bool wide = packs(8, in.q, in.k, in.v);
  with_width<32, 64, 128>(in.q.dim(2), [&]<int kDim>() {
    constexpr int kBytes = kForwardTiles * sizeof(Tile<kDim>);
    allow(attention_kernel<kDim>, kBytes);
    attention_kernel<kDim><<<grid, kThreads, kBytes, stream_of(q)>>>(
        heads<bf16_t>(o), data<float>(lse), heads<bf16_t>(in.q), heads<bf16_t>(in.k),
        heads<bf16_t>(in.v), Visible(in.mask), in.shape(), wide);
  });
  launched("attention");
}

void query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                    const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  dot_rows(q, delta, d_o, o, in.shape());
  const bool wide = packs(8, in.q, in.k, in.v, d_o);
  const dim3 grid(static_cast<unsigned>(blocks_for(in.q.dim(0), kTile)),
                  static_cast<unsigned>(in.q.dim(1)));
  with_width<32, 64, 128>(in.q.dim(2), [&]<int kDim>() {
    constexpr int kBytes = kBackwardTiles * sizeof(Tile<kDim>);
    allow(query_gradient_kernel<kDim>, kBytes);
    query_gradient_kernel<kDim><<<grid, kThreads, kBytes, stream_of(q)>>>(
        heads<bf16_t>(dq), heads<bf16_t>(d_o), data<float>(lse), data<float>(delta),
        heads<bf16_t>(in.q), heads<bf16_t>(in.k), heads<bf16_t>(in.v), Visible(in.mask), in.shape(),
        wide);
  });
  launched("attention's gradient of queries");
}

void key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                  const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  const bool wide = packs(8, in.q, in.k, in.v, d_o);
  const dim3 grid(static_cast<unsigned>(blocks_for(in.k.dim(0), kTile)),
                  static_cast<unsigned>(in.k.dim(1)));
  with_width<32, 64, 128>(in.q.dim(2), [&]<int kDim>() {
    constexpr int kBytes = kBackwardTiles * sizeof(Tile<kDim>);
    allow(key_gradient_kernel<kDim>, kBytes);
    key_gradient_kernel<kDim><<<grid, kThreads, kBytes, stream_of(q)>>>(
        heads<bf16_t>(dk), heads<bf16_t>(dv), heads<bf16_t>(d_o), data<float>(lse),
        data<float>(delta), heads<bf16_t>(in.q), heads<bf16_t>(in.k), heads<bf16_t>(in.v),
        Visible(in.mask), in.shape(), wide);
  });
  launched("attention's gradient of keys");
}

SharedBytes shared(int64_t D) {
  SharedBytes bytes;
  with_width<32, 64, 128>(D, [&]<int kDim>() {
    bytes = {kForwardTiles * sizeof(Tile<kDim>), kBackwardTiles * sizeof(Tile<kDim>)};
  });
  return bytes;
}

}  // namespace

const AttentionKernels kMmaAttention = {forward, query_gradient, key_gradient, shared};

}  // namespace capstan::cuda
