#include "ops/cuda/device.cuh"
#include "ops/cuda/head_loss.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 512;

struct MaxSum {
  float most, sum;  // Σ exp(x - most)
};
__device__ MaxSum joined(MaxSum a, MaxSum b) {
  const float most = fmaxf(a.most, b.most);
  // Infinite logits and NaN show: exp(inf - inf) is NaN. Two empty halves stay empty.
  if (most == -INFINITY) return {most, a.sum + b.sum};
  return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}

__device__ MaxSum block_max_sum(MaxSum mine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    mine = joined(mine, {__shfl_xor_sync(0xffffffff, mine.most, step),
                         __shfl_xor_sync(0xffffffff, mine.sum, step)});
  __shared__ MaxSum room[kThreads / 32];
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  MaxSum all = room[0];
  for (int i = 1; i < kThreads / 32; ++i) all = joined(all, room[i]);
  return all;
}

// The token at place i of those that count, or -1 past the last. T: of all tokens.
__device__ int token_at(const int32_t* order, int64_t i, int64_t T) {
  if (order == nullptr) return static_cast<int>(i);
  return i < order[T] ? order[i] : -1;
}

// A block has one token.
template <int N, class X>
__global__ void cross_entropy_kernel(X* logits, double* losses, const int32_t* labels,
                                     const int32_t* order, int64_t first, int64_t T, int64_t V,
                                     float scale, bool backward) {
  X* const row = logits + blockIdx.x * V;
  const int token = token_at(order, first + blockIdx.x, T);
  const int32_t label = token < 0 ? kIgnore : labels[token];
  losses += first;
  if (label == kIgnore) {
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    if (!backward) return;
    const float zeros[N] = {};
    for (int64_t v = threadIdx.x * N; v < V; v += kThreads * N) store(row + v, zeros);
    return;
  }
  MaxSum mine{-INFINITY, 0};
  for (int64_t v = threadIdx.x * N; v < V; v += kThreads * N) {
    float x[N];
    load(x, row + v);
    float most = x[0];
#pragma unroll
    for (int k = 1; k < N; ++k) most = fmaxf(most, x[k]);
    MaxSum here{most, 0};
#pragma unroll
    for (int k = 0; k < N; ++k) here.sum += expf(x[k] - most);
    mine = joined(mine, here);
  }
  const MaxSum all = block_max_sum(mine);
  const float log_sum = all.most + logf(all.sum);
  if (threadIdx.x == 0) losses[blockIdx.x] = double{log_sum} - double{to_float(row[label])};
  if (!backward) return;
  __syncthreads();  // the label's logit was read
  const float factor = scale / all.sum;
  for (int64_t v = threadIdx.x * N; v < V; v += kThreads * N) {
    float x[N];
    load(x, row + v);
#pragma unroll
    for (int k = 0; k < N; ++k)
      x[k] = expf(x[k] - all.most) * factor - (v + k == label ? scale : 0.0f);
    store(row + v, x);
  }
}

// One block: the tokens of each stretch of kThreads are counted, and put behind those before.
__global__ void order_kernel(int32_t* order, const int32_t* labels, int64_t T) {
  __shared__ int counts[kThreads / 32];
  int done = 0;
  for (int64_t begin = 0; begin < T; begin += kThreads) {
    const int64_t t = begin + threadIdx.x;
    const bool is_target = t < T && labels[t] != kIgnore;
    const unsigned bits = __ballot_sync(0xffffffff, is_target);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    if (lane == 0) counts[warp] = __popc(bits);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kThreads / 32; ++w) {
      before += w < warp ? counts[w] : 0;
      all += counts[w];
    }
    if (is_target)
      order[done + before + __popc(bits & ((1u << lane) - 1))] = static_cast<int32_t>(t);
    done += all;
    __syncthreads();
  }
  if (threadIdx.x == 0) order[T] = done;
}

template <bool kGather, class P>
__global__ void move_rows_kernel(P to, P from, const int32_t* order, int64_t first, int64_t T,
                                 int64_t D) {
  const int token = token_at(order, first + blockIdx.x, T);
  if (!kGather && token < 0) return;
  for (int64_t d = threadIdx.x; d < D; d += kThreads) {
    float v[1] = {0};
    if (kGather) {
      if (token >= 0) load(v, from + (token * D + d));
      store(to + (blockIdx.x * D + d), v);
    } else {
      load(v, from + (blockIdx.x * D + d));
      store(to + (token * D + d), v);
    }
  }
}

__global__ void add_losses_kernel(double* sum, const double* losses, int64_t n) {
  double mine = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads) mine += losses[i];
  __shared__ double room[kThreads];
  room[threadIdx.x] = mine;
  for (int step = kThreads / 2; step > 0; step /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < step) room[threadIdx.x] += room[threadIdx.x + step];
  }
  if (threadIdx.x == 0) *sum += room[0];
}

}  // namespace

void cross_entropy(Queue& q, const Tensor& logits, const Tensor& losses, const Tensor& labels,
                   const Tensor& order, int64_t first, float scale, bool backward) {
  const int64_t rows = logits.dim(0), V = logits.dim(1);
  if (rows == 0) return;
  const bool wide = packs(8, logits);
  with_type(logits.dtype(), [&]<class X>() {
    const auto kernel = wide ? cross_entropy_kernel<8, X> : cross_entropy_kernel<1, X>;
    kernel<<<static_cast<unsigned>(rows), kThreads, 0, stream_of(q)>>>(
        data<X>(logits), data<double>(losses), data<int32_t>(labels),
        order ? data<int32_t>(order) : nullptr, first, labels.numel(), V, scale, backward);
  });
  launched("cross_entropy");
}

void order_targets(Queue& q, const Tensor& order, const Tensor& labels) {
  order_kernel<<<1, kThreads, 0, stream_of(q)>>>(data<int32_t>(order), data<int32_t>(labels),
                                                 labels.numel());
  launched("order_targets");
}

void gather_rows(Queue& q, const Tensor& to, const Tensor& from, const Tensor& order,
                 int64_t first) {
  with_pointers(
      [&]<class P>(P chunk, P whole) {
        move_rows_kernel<true><<<static_cast<unsigned>(to.dim(0)), kThreads, 0, stream_of(q)>>>(
            chunk, whole, data<int32_t>(order), first, order.numel() - 1, to.dim(1));
      },
      to, from);
  launched("gather_rows");
}

void scatter_rows(Queue& q, const Tensor& to, const Tensor& from, const Tensor& order,
                  int64_t first) {
  with_pointers(
      [&]<class P>(P whole, P chunk) {
        move_rows_kernel<false><<<static_cast<unsigned>(from.dim(0)), kThreads, 0, stream_of(q)>>>(
            whole, chunk, data<int32_t>(order), first, order.numel() - 1, from.dim(1));
      },
      to, from);
  launched("scatter_rows");
}

void add_losses(Queue& q, const Tensor& sum, const Tensor& losses) {
  add_losses_kernel<<<1, kThreads, 0, stream_of(q)>>>(data<double>(sum), data<double>(losses),
                                                      losses.numel());
  launched("add_losses");
}

}  // namespace capstan::cuda
