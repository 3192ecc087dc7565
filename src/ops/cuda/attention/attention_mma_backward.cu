// Attention on the tensor cores of any GPU: gradients.
#include "ops/cuda/attention/attention_mma.cuh"

namespace capstan::cuda::mma {
namespace {

template <class T, int kDim, bool kAhead>
__global__ void __launch_bounds__(kThreads)
    query_gradient_kernel(Heads<T> dq, Heads<T> d_o, const float* lse, const float* delta,
                          Heads<T> q, Heads<T> k, Heads<T> v, Visible visible, AttentionShape s,
                          bool wide) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const tiles = reinterpret_cast<Tile<T, kDim>*>(memory);
  Tile<T, kDim>&queries = tiles[0], &gradients = tiles[1];
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
  if constexpr (kAhead) fill(first_key, 0);
  for (int key = first_key, stage = 0; key < rows.end; key += kTile, stage ^= 1) {
    Tile<T, kDim>&keys = tiles[kAhead ? 2 + 2 * stage : 2],
            &values = tiles[kAhead ? 3 + 2 * stage : 2];
    if constexpr (kAhead) {
      fill(key + kTile, stage ^ 1);
      finish_fills<1>();
    } else {
      exchange(values, v, key, s.T, h / s.group, s.D, wide);
    }
    float scores[kColumns][4] = {}, d[kColumns][4] = {};
    multiply_rows(d, gradients, values);
    if constexpr (!kAhead) exchange(keys, k, key, s.T, h / s.group, s.D, wide);
    multiply_rows(scores, queries, keys);
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool seen = rows.sees(i, key + column_of(j, i));
        const float p = exp2f(scores[j][i] * s.scale * kLog2e - log_sum[i / 2]);
        d[j][i] = seen ? s.scale * p * (d[j][i] - shift[i / 2]) : 0.0f;
      }
    multiply_columns<T, kDim>(sums, d, keys);
    if constexpr (kAhead) __syncthreads();
  }
  store_rows<T, kDim>(dq, rows.begin, rows.end, h, s.D, sums, 1.0f, 1.0f);
}

// Scores are computed transposed, so that the warp's rows are keys.
template <class T, int kDim, bool kAhead>
__global__ void __launch_bounds__(kThreads)
    key_gradient_kernel(Heads<T> dk, Heads<T> dv, Heads<T> d_o, const float* lse,
                        const float* delta, Heads<T> q, Heads<T> k, Heads<T> v, Visible visible,
                        AttentionShape s, bool wide) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const tiles = reinterpret_cast<Tile<T, kDim>*>(memory);
  Tile<T, kDim>&keys = tiles[0], &values = tiles[1];
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
      if constexpr (kAhead) {
        tiles[2 + 2 * stage].fill(q, query, s.T, h, s.D, wide);
        tiles[3 + 2 * stage].fill(d_o, query, s.T, h, s.D, wide);
      }
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
    const int h = head * s.group + i / per_head, query = begin + i % per_head * kTile;
    Tile<T, kDim>&queries = tiles[kAhead ? 2 + 2 * stage : 2],
            &gradients = tiles[kAhead ? 3 + 2 * stage : 2];
    fill(i + 1, stage ^ 1);
    if constexpr (kAhead)
      finish_fills<1>();
    else
      exchange(queries, q, query, s.T, h, s.D, wide);
    float p[kColumns][4] = {}, d[kColumns][4] = {};
    multiply_rows(p, keys, queries);
    if constexpr (!kAhead) exchange(gradients, d_o, query, s.T, h, s.D, wide);
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
    multiply_columns<T, kDim>(value_sums, p, gradients);
    if constexpr (!kAhead) exchange(queries, q, query, s.T, h, s.D, wide);
    multiply_columns<T, kDim>(key_sums, d, queries);
    if constexpr (kAhead) __syncthreads();
  }
  store_rows<T, kDim>(dk, begin, end, head, s.D, key_sums, 1.0f, 1.0f);
  store_rows<T, kDim>(dv, begin, end, head, s.D, value_sums, 1.0f, 1.0f);
}

}  // namespace

template <bool kAhead>
void query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                    const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  dot_rows(q, delta, d_o, o, in.shape());
  const bool wide = packs(8, in.q, in.k, in.v, d_o);
  const dim3 grid(static_cast<unsigned>(blocks_for(in.q.dim(0), kTile)),
                  static_cast<unsigned>(in.q.dim(1)));
  with_head<kAhead>(in.q, [&]<class T, int kDim>() {
    constexpr int kBytes = tiles_of(kAhead, kBackwardOwn) * sizeof(Tile<T, kDim>);
    const auto kernel = query_gradient_kernel<T, kDim, kAhead>;
    allow(kernel, kBytes);
    kernel<<<grid, kThreads, kBytes, stream_of(q)>>>(
        heads<T>(dq), heads<T>(d_o), data<float>(lse), data<float>(delta), heads<T>(in.q),
        heads<T>(in.k), heads<T>(in.v), Visible(in.mask), in.shape(), wide);
  });
  launched("attention's gradient of queries");
}

template <bool kAhead>
void key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                  const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  const bool wide = packs(8, in.q, in.k, in.v, d_o);
  const dim3 grid(static_cast<unsigned>(blocks_for(in.k.dim(0), kTile)),
                  static_cast<unsigned>(in.k.dim(1)));
  with_head<kAhead>(in.q, [&]<class T, int kDim>() {
    constexpr int kBytes = tiles_of(kAhead, kBackwardOwn) * sizeof(Tile<T, kDim>);
    const auto kernel = key_gradient_kernel<T, kDim, kAhead>;
    allow(kernel, kBytes);
    kernel<<<grid, kThreads, kBytes, stream_of(q)>>>(
        heads<T>(dk), heads<T>(dv), heads<T>(d_o), data<float>(lse), data<float>(delta),
        heads<T>(in.q), heads<T>(in.k), heads<T>(in.v), Visible(in.mask), in.shape(), wide);
  });
  launched("attention's gradient of keys");
}

template void query_gradient<true>(Queue&, const Tensor&, const Tensor&, const Tensor&,
                                   const Tensor&, const Tensor&, const AttentionInputs&);
template void query_gradient<false>(Queue&, const Tensor&, const Tensor&, const Tensor&,
                                    const Tensor&, const Tensor&, const AttentionInputs&);
template void key_gradient<true>(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, const AttentionInputs&);
template void key_gradient<false>(Queue&, const Tensor&, const Tensor&, const Tensor&,
                                  const Tensor&, const Tensor&, const AttentionInputs&);

}  // namespace capstan::cuda::mma
