#include "ops/cuda/device.cuh"
#include "ops/cuda/product/gemm.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Rows of O values, N at a time.
template <int N, class P>
__global__ void add_bias_kernel(P y, int64_t stride, P b, int64_t T, int64_t O) {
  const int64_t per_row = O / N;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < T * per_row;
       i += gridDim.x * int64_t{kThreads}) {
    const int64_t at = i % per_row * N;
    float v[N], bias[N];
    load(v, y + (i / per_row * stride + at));
    load(bias, b + at);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] += bias[k];
    store(y + (i / per_row * stride + at), v);
  }
}

// partial[blockIdx.y, o] = Σ_t dy[t, o] over the block's `length` rows: its warps sum every
// kWarps-th of them, for 32 N columns, and then add up in order.
template <int N, class P>
__global__ void column_sums_kernel(float* partial, P dy, int64_t stride, int64_t T, int64_t O,
                                   int64_t length) {
  constexpr int kAtOnce = 4;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t o = (blockIdx.x * int64_t{32} + lane) * N;
  const int64_t begin = blockIdx.y * length, end = min(begin + length, T);
  float sums[N] = {};
  if (o < O)
    for (int64_t t = begin + warp; t < end; t += kAtOnce * kWarps) {
      float v[kAtOnce][N] = {};
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
        if (t + u * kWarps < end) load(v[u], dy + ((t + u * kWarps) * stride + o));
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u)
#pragma unroll
        for (int k = 0; k < N; ++k) sums[k] += v[u][k];
    }
  __shared__ float room[kWarps][N][32];
#pragma unroll
  for (int k = 0; k < N; ++k) room[warp][k][lane] = sums[k];
  __syncthreads();
  for (int k = warp; k < N; k += kWarps) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += room[w][k][lane];
    if (o + k < O) partial[blockIdx.y * O + o + k] = sum;
  }
}

template <class P>
__global__ void add_columns_kernel(P db, const float* partial, int64_t parts, int64_t O) {
  const int64_t o = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (o >= O) return;
  float sum = 0, v[1];
  for (int64_t part = 0; part < parts; ++part) sum += partial[part * O + o];
  load(v, db + o);
  v[0] += sum;
  store(db + o, v);
}

}  // namespace

void add_bias(Queue& q, const Tensor& y, const Tensor& b) {
  const int64_t T = y.dim(0), O = y.dim(1);
  const bool wide = packs(8, y, b);
  with_pointers(
      [&]<class P>(P to, P bias) {
        const auto kernel = wide ? add_bias_kernel<kWide<P>, P> : add_bias_kernel<1, P>;
        kernel<<<grid_for(T * O / (wide ? kWide<P> : 1), kThreads), kThreads, 0, stream_of(q)>>>(
            to, y.stride(0), bias, T, O);
      },
      y, b);
  launched("add_bias");
}

void bias_backward(Queue& q, const Tensor& db, const Tensor& dy, std::byte* workspace) {
  const int64_t T = dy.dim(0), O = dy.dim(1);
  if (T == 0) return;
  require(O * int64_t{sizeof(float)} <= kGemmWorkspace, Fault::bug,
          "bias backward: {} outputs do not fit the workspace", O);
  const bool wide = packs(8, dy);
  with_pointers(
      [&]<class P>(P to, P from) {
        const int64_t across = blocks_for(O, 32 * (wide ? kWide<P> : 1));
        // Enough rows for each warp, and enough blocks for the GPU; the parts fit in the workspace.
        const int64_t most = std::min<int64_t>(blocks_for(T, 8 * kWarps),
                                               kGemmWorkspace / (O * int64_t{sizeof(float)}));
        const int64_t wanted = 264 / blocks_for(O, 256);
        const int64_t length = blocks_for(T, std::clamp<int64_t>(wanted, 1, most));
        const int64_t parts = blocks_for(T, length);
        const auto kernel = wide ? column_sums_kernel<kWide<P>, P> : column_sums_kernel<1, P>;
        auto* const partial = reinterpret_cast<float*>(workspace);
        kernel<<<dim3(static_cast<unsigned>(across), static_cast<unsigned>(parts)), kThreads, 0,
                 stream_of(q)>>>(partial, from, dy.stride(0), T, O, length);
        add_columns_kernel<<<static_cast<unsigned>(blocks_for(O, kThreads)), kThreads, 0,
                             stream_of(q)>>>(to, partial, parts, O);
      },
      db, dy);
  launched("bias backward");
}

}  // namespace capstan::cuda
