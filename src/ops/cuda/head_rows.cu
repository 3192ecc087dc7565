// Target tokens: their order, their rows, and the sum of their losses.
#include "ops/cuda/head_loss.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 512;

// One block: counts the tokens of each range of kThreads and appends them to the previous ones.
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

template <bool kGather, int N, class P>
__global__ void move_rows_kernel(P to, P from, const int32_t* order, int64_t first, int64_t T,
                                 int64_t D) {
  const int token = token_at(order, first + blockIdx.x, T);
  if (!kGather && token < 0) return;
  for (int64_t d = threadIdx.x * N; d < D; d += kThreads * N) {
    float v[N] = {};
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

void order_targets(Queue& q, const Tensor& order, const Tensor& labels) {
  order_kernel<<<1, kThreads, 0, stream_of(q)>>>(data<int32_t>(order), data<int32_t>(labels),
                                                 labels.numel());
  launched("order_targets");
}

void gather_rows(Queue& q, const Tensor& to, const Tensor& from, const Tensor& order,
                 int64_t first) {
  with_pointers(
      [&]<class P>(P chunk, P whole) {
        const auto kernel =
            packs(8, to, from) ? move_rows_kernel<true, 8, P> : move_rows_kernel<true, 1, P>;
        kernel<<<static_cast<unsigned>(to.dim(0)), kThreads, 0, stream_of(q)>>>(
            chunk, whole, data<int32_t>(order), first, order.numel() - 1, to.dim(1));
      },
      to, from);
  launched("gather_rows");
}

void scatter_rows(Queue& q, const Tensor& to, const Tensor& from, const Tensor& order,
                  int64_t first) {
  with_pointers(
      [&]<class P>(P whole, P chunk) {
        const auto kernel =
            packs(8, to, from) ? move_rows_kernel<false, 8, P> : move_rows_kernel<false, 1, P>;
        kernel<<<static_cast<unsigned>(from.dim(0)), kThreads, 0, stream_of(q)>>>(
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
