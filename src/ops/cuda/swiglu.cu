#include "ops/cuda/device.cuh"
#include "ops/cuda/swiglu.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

// Narrow inputs and outputs have fewer digits than the fast version loses; the exact one takes
// twenty instructions, too many when the clock is power-limited.
template <class P>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<P, bf16_t*> || std::is_same_v<P, f16_t*>)
    return __fdividef(1.0f, 1.0f + power_of_two(-kLog2e * x));
  else
    return 1.0f / (1.0f + expf(-x));
}

template <int N, class P>
__global__ void swiglu_kernel(P y, P gu, int64_t T, int64_t F) {
  walk_rows(T, F / N, [&](int64_t t, int64_t pack) {
    const int64_t f = pack * N;
    float g[N], u[N];
    load(g, gu + t * 2 * F + f);
    load(u, gu + t * 2 * F + F + f);
#pragma unroll
    for (int i = 0; i < N; ++i) u[i] *= g[i] * sigmoid<P>(g[i]);
    store(y + t * F + f, u);
  });
}

// d silu(g) = s (1 + g (1 - s)), s = sigmoid(g); written to avoid infinity times zero.
template <int N, class P>
__global__ void swiglu_backward_kernel(P dgu, P dy, P gu, int64_t T, int64_t F) {
  walk_rows(T, F / N, [&](int64_t t, int64_t pack) {
    const int64_t f = pack * N;
    float g[N], u[N], d[N];
    load(g, gu + t * 2 * F + f);
    load(u, gu + t * 2 * F + F + f);
    load(d, dy + t * F + f);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float s = sigmoid<P>(g[i]), silu = g[i] * s;
      g[i] = d[i] * u[i] * (s + silu * (1.0f - s));
      u[i] = d[i] * silu;
    }
    store(dgu + t * 2 * F + f, g);
    store(dgu + t * 2 * F + F + f, u);
  });
}

}  // namespace

void swiglu(Queue& q, const Tensor& y, const Tensor& gu) {
  const int64_t T = y.dim(0), F = y.dim(1);
  if (T == 0) return;
  const bool wide = packs(8, y) && packs(8, gu.cols(0, F));
  with_pointers(
      [&]<class P>(P to, P from) {
        const auto kernel = wide ? swiglu_kernel<kWide<P>, P> : swiglu_kernel<1, P>;
        kernel<<<grid_for(T * F / (wide ? kWide<P> : 1), kThreads), kThreads, 0, stream_of(q)>>>(
            to, from, T, F);
      },
      y, gu);
  launched("swiglu");
}

void swiglu_backward(Queue& q, const Tensor& dgu, const Tensor& dy, const Tensor& gu) {
  const int64_t T = dy.dim(0), F = dy.dim(1);
  if (T == 0) return;
  const bool wide = packs(8, dy) && packs(8, gu.cols(0, F));
  with_pointers(
      [&]<class P>(P d_gate_up, P d, P gate_up) {
        const auto kernel =
            wide ? swiglu_backward_kernel<kWide<P>, P> : swiglu_backward_kernel<1, P>;
        kernel<<<grid_for(T * F / (wide ? kWide<P> : 1), kThreads), kThreads, 0, stream_of(q)>>>(
            d_gate_up, d, gate_up, T, F);
      },
      dgu, dy, gu);
  launched("swiglu backward");
}

}  // namespace capstan::cuda
