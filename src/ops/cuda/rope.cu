#include "ops/cuda/device.cuh"
#include "ops/cuda/rope.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

struct RopeShape {
  int64_t T, H, half;          // half: D / 2
  int64_t stride_t, stride_h;  // of x, in values
};

template <int N, class X>
__global__ void rope_kernel(X* x, const float* cosines, const float* sines,
                            const int32_t* positions, RopeShape s, float direction) {
  const auto packs = static_cast<uint32_t>(s.half / N);
  walk_rows(s.T, s.H * packs, [&](int64_t t, uint32_t item) {
    const uint32_t i = item % packs * N, head = item / packs;
    X* const at = x + t * s.stride_t + head * s.stride_h + i;
    float c[N], d[N], a[N], b[N];
    load(c, cosines + positions[t] * s.half + i);
    load(d, sines + positions[t] * s.half + i);
    load(a, at);
    load(b, at + s.half);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float sine = direction * d[k], first = a[k];
      a[k] = first * c[k] - b[k] * sine;
      b[k] = b[k] * c[k] + first * sine;
    }
    store(at, a);
    store(at + s.half, b);
  });
}

}  // namespace

void rope(Queue& q, const Tensor& x, const Tensor& cosines, const Tensor& sines,
          const Tensor& positions, Rotation rotation) {
  if (x.numel() == 0) return;
  const RopeShape s{x.dim(0), x.dim(1), x.dim(2) / 2, x.stride(0), x.stride(1)};
  const bool wide = packs(8, x) && s.half % 8 == 0;
  with_type(x.dtype(), [&]<class X>() {
    const auto kernel = wide ? rope_kernel<kWide<X*>, X> : rope_kernel<1, X>;
    kernel<<<grid_for(s.T * s.H * s.half / (wide ? kWide<X*> : 1), kThreads), kThreads, 0,
             stream_of(q)>>>(data<X>(x), data<float>(cosines), data<float>(sines),
                             data<int32_t>(positions), s,
                             rotation == Rotation::forward ? 1.0f : -1.0f);
  });
  launched("rope");
}

}  // namespace capstan::cuda
