// The forward pass; attention_f32.cuh describes it.
#include "ops/cuda/attention/attention_f32.cuh"

namespace capstan::cuda {
namespace f32 {
namespace {

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kDim <= 64 ? 3 : 1)
    attention_kernel(Heads<float> o, float* lse, Heads<float> q, Heads<float> k, Heads<float> v,
                     Visible visible, AttentionShape s, bool wide) {
  extern __shared__ __align__(16) float memory[];
  float* const queries = memory;
  float* const keys = queries + S::kRows * S::kStride;
  float* const values = keys + kColumns * S::kStride;
  float* const room = values + kColumns * S::kStride;
  __shared__ int firsts[S::kRows];
  // The last tiles see the most keys, so they start first.
  const int begin = static_cast<int>(gridDim.y - 1 - blockIdx.y) * S::kRows;
  const int h = static_cast<int>(blockIdx.x), head = h / s.group;
  const int end = min(begin + S::kRows, s.T);
  for (int r = static_cast<int>(threadIdx.x); r < S::kRows; r += S::kThreads)
    firsts[r] = visible.first(min(begin + r, s.T - 1));
  fill<S, S::kRows>(queries, q, begin, end, h, s.D, wide);
  __syncthreads();
  const int first_key = firsts[0] / kColumns * kColumns, latest_first = firsts[S::kRows - 1];
  const auto fill_next = [&](float* tile, const Heads<float>& from, int key) {
    if (key < end) fill<S, kColumns>(tile, from, key, s.T, head, s.D, wide);
    end_group();
  };
  fill_next(keys, k, first_key);
  fill_next(values, v, first_key);

  const float factor = s.scale * kLog2e;
  float out[S::kHigh][S::kChannels] = {}, most[S::kHigh], sum[S::kHigh] = {};
#pragma unroll
  for (float& m : most) m = -INFINITY;
  for (int key = first_key; key < end; key += kColumns) {
    finish_fills<1>();
    float p[S::kHigh][kEach];
    multiply_rows<S>(p, queries, keys);
    if (key < latest_first || key + kColumns > begin + 1) {
#pragma unroll
      for (int i = 0; i < S::kHigh; ++i)
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const int at = key + S::column(j);
          if (at > begin + S::row(i) || at < firsts[S::row(i)]) p[i][j] = -INFINITY;
        }
    }
#pragma unroll
    for (int i = 0; i < S::kHigh; ++i) {
      float high = most[i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) high = fmaxf(high, p[i][j]);
      high = row_max(high);
      // A row may have seen no key yet: avoid -inf minus -inf. Scores are subtracted before
      // scaling, so large ones keep their digits.
      const float shift = high == -INFINITY ? 0.0f : high;
      const float shrink = power_of_two((most[i] - shift) * factor);
      most[i] = high;
      sum[i] *= shrink;
#pragma unroll
      for (float& x : out[i]) x *= shrink;
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        p[i][j] = power_of_two((p[i][j] - shift) * factor);
        sum[i] += p[i][j];
      }
    }
    finish_fills<0>();
    fill_next(keys, k, key + kColumns);
    // Whether rows and keys belong to several documents.
    const bool mixed = latest_first > min(key, begin);
    multiply_columns<S>(out, p, room, values, mixed);
    __syncthreads();
    fill_next(values, v, key + kColumns);
  }
#pragma unroll
  for (int i = 0; i < S::kHigh; ++i) {
    const float total = row_sum(sum[i]);
    const int row = begin + S::row(i);
    if (S::x() == 0 && row < end) lse[int64_t{h} * s.T + row] = most[i] * s.scale + logf(total);
    const float inverse = 1.0f / total;
#pragma unroll
    for (float& x : out[i]) x *= inverse;
  }
  store_rows<S>(o, begin, end, h, s.D, out, wide);
}

}  // namespace
}  // namespace f32

void f32_attention(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  using namespace f32;
  const bool wide = packs(4, in.q, in.k, in.v, o);
  with_width<32, 64, 96, 128>(in.q.dim(2), [&]<int kDim>() {
    using S = ForwardTiling<kDim>;
    constexpr int kBytes = kForwardBytes<kDim>;
    const dim3 grid(static_cast<unsigned>(in.q.dim(1)),
                    static_cast<unsigned>(blocks_for(in.q.dim(0), S::kRows)));
    allow(attention_kernel<S>, kBytes);
    attention_kernel<S><<<grid, S::kThreads, kBytes, stream_of(q)>>>(
        heads<float>(o), data<float>(lse), heads<float>(in.q), heads<float>(in.k),
        heads<float>(in.v), Visible(in.mask), in.shape(), wide);
  });
  launched("attention");
}

namespace {

SharedBytes f32_shared(int64_t D) {
  SharedBytes bytes;
  with_width<32, 64, 96, 128>(D, [&]<int kDim>() {
    bytes = {f32::kForwardBytes<kDim>, f32::kBackwardBytes<kDim>};
  });
  return bytes;
}

}  // namespace

const AttentionKernels kF32Attention = {f32_attention, f32_query_gradient, f32_key_gradient,
                                        f32_shared};

}  // namespace capstan::cuda
