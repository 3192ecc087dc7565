#include "ops/adamw_factors.h"
#include "ops/cuda/device.cuh"
#include "ops/cuda/optimizer.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float value_or_one(const float* scalar) {
  return scalar == nullptr ? 1.0f : *scalar;
}

__device__ void adamw_value(float& w, float grad, float& m, float& v, const AdamWFactors& f) {
  m = f.beta1 * m + f.rest1 * grad;
  v = f.beta2 * v + f.rest2 * (grad * grad);
  w = w * f.decay - f.rate * m / (sqrtf(v) * f.root + f.eps);
}

// master is a null pointer where there is none.
template <int N, class P>
__global__ void adamw_kernel(P weight, P master, bool has_master, P grad, P m, P v,
                             const float* grad_scale, AdamWFactors f, int64_t n) {
  const float scale = value_or_one(grad_scale);
  const P full = has_master ? master : weight;
  for (int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * N; i < n;
       i += gridDim.x * int64_t{kThreads} * N) {
    float w[N], g[N], first[N], second[N];
    load(w, full + i);
    load(g, grad + i);
    load(first, m + i);
    load(second, v + i);
#pragma unroll
    for (int k = 0; k < N; ++k) adamw_value(w[k], g[k] * scale, first[k], second[k], f);
    store(weight + i, w);
    if (has_master) store(master + i, w);
    store(m + i, first);
    store(v + i, second);
  }
}

template <class P>
__global__ void sgd_kernel(P weight, P master, bool has_master, P grad, P m, bool has_momentum,
                           const float* grad_scale, SgdStep s, int64_t n) {
  const float scale = value_or_one(grad_scale);
  const P full = has_master ? master : weight;
  for (int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x; i < n;
       i += gridDim.x * int64_t{kThreads}) {
    float w[1], g[1], momentum[1];
    load(w, full + i);
    load(g, grad + i);
    const float d = g[0] * scale + s.weight_decay * w[0];
    float move = d;
    if (has_momentum) {
      // What m held before the first step does not count, not even if it is NaN.
      load(momentum, m + i);
      momentum[0] = s.step == 1 ? d : s.momentum * momentum[0] + (1.0f - s.dampening) * d;
      store(m + i, momentum);
      move = s.nesterov ? d + s.momentum * momentum[0] : momentum[0];
    }
    w[0] -= s.lr * move;
    store(weight + i, w);
    if (has_master) store(master + i, w);
  }
}

template <int N>
__global__ void sum_squares_kernel(double* partials, AnyPointer x, int64_t n) {
  double sum = 0;
  // Which values a thread has depends on n alone, and so does the order of the sums.
  for (int64_t i = (blockIdx.x * int64_t{kThreads} + threadIdx.x) * N; i < n;
       i += gridDim.x * int64_t{kThreads} * N) {
    float v[N];
    load(v, x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += double{v[k]} * double{v[k]};
  }
  __shared__ double room[kThreads];
  room[threadIdx.x] = sum;
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < step) room[threadIdx.x] += room[threadIdx.x + step];
  }
  if (threadIdx.x == 0) partials[blockIdx.x] = room[0];
}

__global__ void add_partials_kernel(double* sum, const double* partials, int count) {
  double mine = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) mine += partials[i];
  __shared__ double room[kThreads];
  room[threadIdx.x] = mine;
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < step) room[threadIdx.x] += room[threadIdx.x + step];
  }
  if (threadIdx.x == 0) *sum += room[0];
}

__global__ void clip_scale_kernel(float* scale, const double* sum, float max_norm) {
  const double squares = *sum;
  *scale = isfinite(squares)
               ? static_cast<float>(fmin(1.0, double{max_norm} / (sqrt(squares) + 1e-6)))
               : __int_as_float(0x7fc00000);
}

const float* scalar(const Tensor& t) {
  return t ? data<float>(t) : nullptr;
}

}  // namespace

void adamw(Queue& q, const OptimizerOperands& p, const AdamWStep& s) {
  const int64_t n = p.weight.numel();
  if (n == 0) return;
  const AdamWFactors factors(s);
  const bool wide = n % 4 == 0;
  with_pointers(
      [&]<class P>(P weight, P master, P grad, P m, P v) {
        const auto kernel = wide ? adamw_kernel<4, P> : adamw_kernel<1, P>;
        kernel<<<grid_for(n / (wide ? 4 : 1), kThreads), kThreads, 0, stream_of(q)>>>(
            weight, master, bool{p.master}, grad, m, v, scalar(p.grad_scale), factors, n);
      },
      p.weight, p.master, p.grad, p.m, p.v);
  launched("adamw");
}

void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s) {
  const int64_t n = p.weight.numel();
  if (n == 0) return;
  with_pointers(
      [&]<class P>(P weight, P master, P grad, P m) {
        sgd_kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(q)>>>(
            weight, master, bool{p.master}, grad, m, bool{p.m}, scalar(p.grad_scale), s, n);
      },
      p.weight, p.master, p.grad, p.m);
  launched("sgd");
}

void sum_squares(Queue& q, const Tensor& sum, const Tensor& x, const Tensor& partials) {
  const int64_t n = x.numel();
  if (n == 0) return;
  const auto blocks =
      static_cast<int>(std::min(kSumPartials, blocks_for(n, int64_t{kThreads} * 16)));
  const auto kernel = n % 8 == 0 ? sum_squares_kernel<8> : sum_squares_kernel<1>;
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream_of(q)>>>(data<double>(partials),
                                                                       any(x), n);
  add_partials_kernel<<<1, kThreads, 0, stream_of(q)>>>(data<double>(sum), data<double>(partials),
                                                        blocks);
  launched("sum_squares");
}

void clip_scale(Queue& q, const Tensor& scale, const Tensor& sum, float max_norm) {
  clip_scale_kernel<<<1, 1, 0, stream_of(q)>>>(data<float>(scale), data<double>(sum), max_norm);
  launched("clip_scale");
}

}  // namespace capstan::cuda
