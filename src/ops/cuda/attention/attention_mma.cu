// Attention on the tensor cores of any GPU: forward.
#include "ops/cuda/attention/attention_mma.cuh"

namespace capstan::cuda {
namespace mma {
namespace {

template <class T, int kDim, bool kAhead>
__global__ void __launch_bounds__(kThreads)
    attention_kernel(Heads<T> o, float* lse, Heads<T> q, Heads<T> k, Heads<T> v, Visible visible,
                     AttentionShape s, bool wide) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto* const tiles = reinterpret_cast<Tile<T, kDim>*>(memory);
  Tile<T, kDim>& queries = tiles[0];
  __shared__ int firsts[kTile];
  const QueryRows rows(last_tile_first(), visible, s.T, firsts);
  const int h = static_cast<int>(blockIdx.y);
  queries.fill(q, rows.begin, rows.end, h, s.D, wide);

  float out[kDim / 8][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
  const int first_key = rows.earliest / kTile * kTile;
  const auto fill = [&](int key, int stage) {
    fill_keys(&tiles[1 + 2 * stage], k, v, key, rows.end, h / s.group, s, wide);
  };
  if constexpr (kAhead) fill(first_key, 0);
  for (int key = first_key, stage = 0; key < rows.end; key += kTile, stage ^= 1) {
    Tile<T, kDim>&keys = tiles[kAhead ? 1 + 2 * stage : 1],
            &values = tiles[kAhead ? 2 + 2 * stage : 1];
    if constexpr (kAhead) {
      fill(key + kTile, stage ^ 1);
      finish_fills<1>();
    } else {
      exchange(keys, k, key, s.T, h / s.group, s.D, wide);
    }
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
    if constexpr (!kAhead) exchange(values, v, key, s.T, h / s.group, s.D, wide);
    multiply_columns<T, kDim>(out, scores, values);
    if constexpr (kAhead) __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = row_sum(sum[r]);
    if (lane() % 4 == 0 && rows.rows[r] < rows.end)
      lse[int64_t{h} * s.T + rows.rows[r]] = most[r] * s.scale + logf(sum[r]);
  }
  store_rows<T, kDim>(o, rows.begin, rows.end, h, s.D, out, 1.0f / sum[0], 1.0f / sum[1]);
}

template <bool kAhead>
void forward(Queue& q, const Tensor& o, const Tensor& lse, const AttentionInputs& in) {
  const dim3 grid(static_cast<unsigned>(blocks_for(in.q.dim(0), kTile)),
                  static_cast<unsigned>(in.q.dim(1)));
  const bool wide = packs(8, in.q, in.k, in.v);
  with_head<kAhead>(in.q, [&]<class T, int kDim>() {
    constexpr int kBytes = tiles_of(kAhead, kForwardOwn) * sizeof(Tile<T, kDim>);
    const auto kernel = attention_kernel<T, kDim, kAhead>;
    allow(kernel, kBytes);
    kernel<<<grid, kThreads, kBytes, stream_of(q)>>>(heads<T>(o), data<float>(lse), heads<T>(in.q),
                                                     heads<T>(in.k), heads<T>(in.v),
                                                     Visible(in.mask), in.shape(), wide);
  });
  launched("attention");
}

template <bool kAhead>
SharedBytes shared(int64_t D) {
  SharedBytes bytes;
  with_head<kAhead>(Tensor(nullptr, DType::bf16, {1, 1, D}), [&]<class T, int kDim>() {
    bytes = {tiles_of(kAhead, kForwardOwn) * sizeof(Tile<T, kDim>),
             tiles_of(kAhead, kBackwardOwn) * sizeof(Tile<T, kDim>)};
  });
  return bytes;
}

}  // namespace
}  // namespace mma

const AttentionKernels kMmaAttention = {mma::forward<true>, mma::query_gradient<true>,
                                        mma::key_gradient<true>, mma::shared<true>};
const AttentionKernels kSmallMmaAttention = {mma::forward<false>, mma::query_gradient<false>,
                                             mma::key_gradient<false>, mma::shared<false>};

}  // namespace capstan::cuda
