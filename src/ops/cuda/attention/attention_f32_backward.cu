// The backward pass; attention_f32.cuh describes it.
#include "ops/cuda/attention/attention_f32.cuh"

namespace capstan::cuda {
namespace f32 {
namespace {

template <class S>
__global__ void __launch_bounds__(S::kThreads)
    query_gradient_kernel(Heads<float> dq, Heads<float> d_o, const float* lse, const float* delta,
                          Heads<float> q, Heads<float> k, Heads<float> v, Visible visible,
                          AttentionShape s, bool wide) {
  extern __shared__ __align__(16) float memory[];
  float* const queries = memory;
  float* const gradients = queries + S::kRows * S::kStride;
  float* const keys = gradients + S::kRows * S::kStride;
  float* const values = keys + kColumns * S::kStride;
  float* const room = values + kColumns * S::kStride;
  __shared__ int firsts[S::kRows];
  __shared__ float log_sums[S::kRows], shifts[S::kRows];
  const int begin = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::kRows;
  const int h = static_cast<int>(blockIdx.x), head = h / s.group;
  const int end = min(begin + S::kRows, s.T);
  for (int r = static_cast<int>(threadIdx.x); r < S::kRows; r += S::kThreads) {
    const int t = min(begin + r, s.T - 1);
    firsts[r] = visible.first(t);
    log_sums[r] = lse[int64_t{h} * s.T + t];
    shifts[r] = delta[int64_t{h} * s.T + t];
  }
  fill<S, S::kRows>(queries, q, begin, end, h, s.D, wide);
  fill<S, S::kRows>(gradients, d_o, begin, end, h, s.D, wide);
  __syncthreads();
  const int first_key = firsts[0] / kColumns * kColumns, latest_first = firsts[S::kRows - 1];
  const auto fill_next = [&](float* tile, const Heads<float>& from, int key) {
    if (key < end) fill<S, kColumns>(tile, from, key, s.T, head, s.D, wide);
    end_group();
  };
  fill_next(values, v, first_key);
  fill_next(keys, k, first_key);

  float sums[S::kHigh][S::kChannels] = {};
  for (int key = first_key; key < end; key += kColumns) {
    float p[S::kHigh][kEach], d[S::kHigh][kEach];
    finish_fills<1>();
    multiply_rows<S>(d, gradients, values);
    __syncthreads();
    fill_next(values, v, key + kColumns);
    finish_fills<1>();
    multiply_rows<S>(p, queries, keys);
#pragma unroll
    for (int i = 0; i < S::kHigh; ++i) {
      const int row = S::row(i);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int at = key + S::column(j);
        const bool seen = at <= begin + row && at >= firsts[row];
        const float probability = power_of_two(fmaf(p[i][j], s.scale, -log_sums[row]) * kLog2e);
        d[i][j] = seen ? s.scale * probability * (d[i][j] - shifts[row]) : 0.0f;
      }
    }
    multiply_columns<S>(sums, d, room, keys, key < latest_first);
    __syncthreads();
    fill_next(keys, k, key + kColumns);
  }
  store_rows<S>(dq, begin, end, h, s.D, sums, wide);
}

// Rows are keys, columns are queries: of all heads of the group, one after the other.
template <class S>
__global__ void __launch_bounds__(S::kThreads)
    key_gradient_kernel(Heads<float> dk, Heads<float> dv, Heads<float> d_o, const float* lse,
                        const float* delta, Heads<float> q, Heads<float> k, Heads<float> v,
                        Visible visible, AttentionShape s, bool wide) {
  extern __shared__ __align__(16) float memory[];
  float* const keys = memory;
  float* const values = keys + S::kRows * S::kStride;
  float* const queries = values + S::kRows * S::kStride;
  float* const gradients = queries + kColumns * S::kStride;
  float* const room = gradients + kColumns * S::kStride;
  __shared__ int lasts[S::kRows];
  __shared__ float log_sums[kColumns], shifts[kColumns];
  // The first keys of a document have the most queries. Half of the heads start with them and half
  // end with them, to balance the blocks that share an SM.
  const int tile =
      static_cast<int>(blockIdx.y * 2 < gridDim.y ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
  const int begin = tile * S::kRows, head = static_cast<int>(blockIdx.y);
  const int end = min(begin + S::kRows, s.T);
  for (int r = static_cast<int>(threadIdx.x); r < S::kRows; r += S::kThreads)
    lasts[r] = visible.last(min(begin + r, s.T - 1));
  fill<S, S::kRows>(keys, k, begin, end, head, s.D, wide);
  fill<S, S::kRows>(values, v, begin, end, head, s.D, wide);
  __syncthreads();
  const int earliest_last = lasts[0], latest = lasts[S::kRows - 1];
  const int per_head = (latest - begin + kColumns - 1) / kColumns, count = per_head * s.group;
  const auto fill_queries = [&](int i) {
    if (i < count) {
      const int h = head * s.group + i / per_head, query = begin + i % per_head * kColumns;
      fill<S, kColumns>(queries, q, query, s.T, h, s.D, wide);
      if (threadIdx.x < kColumns) {
        const int64_t at = int64_t{h} * s.T + min(query + static_cast<int>(threadIdx.x), s.T - 1);
        log_sums[threadIdx.x] = lse[at];
        shifts[threadIdx.x] = delta[at];
      }
    }
    end_group();
  };
  const auto fill_gradients = [&](int i) {
    if (i < count)
      fill<S, kColumns>(gradients, d_o, begin + i % per_head * kColumns, s.T,
                        head * s.group + i / per_head, s.D, wide);
    end_group();
  };
  fill_queries(0);
  fill_gradients(0);

  float key_sums[S::kHigh][S::kChannels] = {}, value_sums[S::kHigh][S::kChannels] = {};
  for (int i = 0; i < count; ++i) {
    const int query = begin + i % per_head * kColumns;
    const bool mixed = query + kColumns > earliest_last;
    float p[S::kHigh][kEach], d[S::kHigh][kEach];
    finish_fills<1>();
    multiply_rows<S>(p, keys, queries);
    finish_fills<0>();
    multiply_rows<S>(d, values, gradients);
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      const int at = query + S::column(j);
      const float log_sum = log_sums[S::column(j)], shift = shifts[S::column(j)];
#pragma unroll
      for (int r = 0; r < S::kHigh; ++r) {
        const bool seen = at >= begin + S::row(r) && at < lasts[S::row(r)];
        p[r][j] = seen ? power_of_two(fmaf(p[r][j], s.scale, -log_sum) * kLog2e) : 0.0f;
        d[r][j] = seen ? s.scale * p[r][j] * (d[r][j] - shift) : 0.0f;
      }
    }
    multiply_columns<S>(key_sums, d, room, queries, mixed);
    __syncthreads();
    fill_queries(i + 1);
    multiply_columns<S>(value_sums, p, room, gradients, mixed);
    __syncthreads();
    fill_gradients(i + 1);
  }
  store_rows<S>(dk, begin, end, head, s.D, key_sums, wide);
  store_rows<S>(dv, begin, end, head, s.D, value_sums, wide);
}

}  // namespace
}  // namespace f32

void f32_query_gradient(Queue& q, const Tensor& dq, const Tensor& delta, const Tensor& d_o,
                        const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  dot_rows(q, delta, d_o, o, in.shape());
  using namespace f32;
  const bool wide = packs(4, in.q, in.k, in.v, d_o, dq);
  with_width<32, 64, 96, 128>(in.q.dim(2), [&]<int kDim>() {
    using S = BackwardTiling<kDim>;
    constexpr int kBytes = kBackwardBytes<kDim>;
    const dim3 grid(static_cast<unsigned>(in.q.dim(1)),
                    static_cast<unsigned>(blocks_for(in.q.dim(0), S::kRows)));
    allow(query_gradient_kernel<S>, kBytes);
    query_gradient_kernel<S><<<grid, S::kThreads, kBytes, stream_of(q)>>>(
        heads<float>(dq), heads<float>(d_o), data<float>(lse), data<float>(delta),
        heads<float>(in.q), heads<float>(in.k), heads<float>(in.v), Visible(in.mask), in.shape(),
        wide);
  });
  launched("attention's gradient of queries");
}

void f32_key_gradient(Queue& q, const Tensor& dk, const Tensor& dv, const Tensor& d_o,
                      const Tensor& lse, const Tensor& delta, const AttentionInputs& in) {
  using namespace f32;
  const bool wide = packs(4, in.q, in.k, in.v, d_o, dk, dv);
  with_width<32, 64, 96, 128>(in.q.dim(2), [&]<int kDim>() {
    using S = BackwardTiling<kDim>;
    constexpr int kBytes = kBackwardBytes<kDim>;
    const dim3 grid(static_cast<unsigned>(blocks_for(in.k.dim(0), S::kRows)),
                    static_cast<unsigned>(in.k.dim(1)));
    allow(key_gradient_kernel<S>, kBytes);
    key_gradient_kernel<S><<<grid, S::kThreads, kBytes, stream_of(q)>>>(
        heads<float>(dk), heads<float>(dv), heads<float>(d_o), data<float>(lse), data<float>(delta),
        heads<float>(in.q), heads<float>(in.k), heads<float>(in.v), Visible(in.mask), in.shape(),
        wide);
  });
  launched("attention's gradient of keys");
}

}  // namespace capstan::cuda
