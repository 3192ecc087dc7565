#include "ops/cuda/device.cuh"
#include "ops/cuda/embedding.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

// Row numbers within the table.
struct RowOf {
  int64_t first, count;
  bool some;

  RowOf(const EmbeddingRows& rows, const Tensor& w)
      : first(rows.first), count(w.dim(0)), some(rows.some) {}
  __device__ int64_t operator()(int32_t id) const { return id - first; }
  // Whether the table has the row of this id.
  __device__ bool has(int32_t id) const { return !some || (id >= first && id - first < count); }
};

template <int N, class P>
__global__ void embedding_kernel(P y, P w, const int32_t* ids, RowOf row_of, int64_t T, int64_t D) {
  const int64_t packs = D / N;
  for (int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x; item < T * packs;
       item += gridDim.x * int64_t{kThreads}) {
    const int64_t t = item / packs, d = item % packs * N;
    const int32_t id = ids[t];
    float v[N] = {};
    if (row_of.has(id)) load(v, w + row_of(id) * D + d);
    store(y + t * D + d, v);
  }
}

// sum += rows `tokens` of x, in order; issues kBatch loads at a time, since some tokens are very
// frequent (spaces, padding).
template <int N, class P>
__device__ void add_rows(float (&sum)[N], P x, const int* tokens, int count, int64_t D) {
  constexpr int kBatch = 8;
  for (int i = 0; i < count; i += kBatch) {
    float rows[kBatch][N];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (i + b < count) load(rows[b], x + tokens[i + b] * D);
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
      if (i + b < count)
#pragma unroll
        for (int k = 0; k < N; ++k) sum[k] += rows[b][k];
  }
}

// Block (t, c) owns row ids[t] if t is the first token with that id, and adds the gradients of all
// its tokens in order, for the c-th range of columns. Finding the others costs T cached reads per
// token: far less than the sums themselves, up to tens of thousands of tokens.
template <int N, class P>
__global__ void embedding_backward_kernel(P dw, P dy, const int32_t* ids, RowOf row_of, int T,
                                          int64_t D) {
  const int t = static_cast<int>(blockIdx.x);
  const int32_t id = ids[t];
  if (!row_of.has(id)) return;
  const int64_t row = row_of(id);
  bool earlier = false;
  for (int s = static_cast<int>(threadIdx.x); s < t && !earlier; s += kThreads)
    earlier = ids[s] == id;
  if (__syncthreads_or(earlier)) return;
  const int64_t d = (blockIdx.y * int64_t{kThreads} + threadIdx.x) * N;
  float sum[N] = {};
  if (d < D) load(sum, dw + row * D + d);
  __shared__ int found[kThreads], counts[kThreads / 32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int begin = t; begin < T; begin += kThreads) {
    const int s = begin + static_cast<int>(threadIdx.x);
    const bool is_here = s < T && ids[s] == id;
    const int count = __syncthreads_count(is_here);
    if (count == 0) continue;
    // The tokens of this range, in order.
    const unsigned bits = __ballot_sync(0xffffffff, is_here);
    if (lane == 0) counts[warp] = __popc(bits);
    __syncthreads();
    int before = __popc(bits & ((1u << lane) - 1));
    for (int w = 0; w < warp; ++w) before += counts[w];
    if (is_here) found[before] = s;
    __syncthreads();
    if (d < D) add_rows<N>(sum, dy + d, found, count, D);
  }
  if (d < D) store(dw + row * D + d, sum);
}

}  // namespace

void embedding(Queue& q, const Tensor& y, const Tensor& w, const Tensor& ids,
               const EmbeddingRows& rows) {
  const int64_t T = y.dim(0), D = y.dim(1);
  if (T == 0) return;
  const bool wide = packs(8, y, w);
  with_pointers(
      [&]<class P>(P to, P from) {
        const auto kernel = wide ? embedding_kernel<kWide<P>, P> : embedding_kernel<1, P>;
        kernel<<<grid_for(T * D / (wide ? kWide<P> : 1), kThreads), kThreads, 0, stream_of(q)>>>(
            to, from, data<int32_t>(ids), RowOf(rows, w), T, D);
      },
      y, w);
  launched("embedding");
}

void embedding_backward(Queue& q, const Tensor& dw, const Tensor& dy, const Tensor& ids,
                        const EmbeddingRows& rows) {
  const int64_t T = dy.dim(0), D = dy.dim(1);
  if (T == 0) return;
  const int n = packs(8, dw, dy) ? 8 : 1;
  const dim3 grid(static_cast<unsigned>(T), static_cast<unsigned>(blocks_for(D, kThreads * n)));
  with_pointers(
      [&]<class P>(P to, P from) {
        const auto kernel =
            n == 8 ? embedding_backward_kernel<8, P> : embedding_backward_kernel<1, P>;
        kernel<<<grid, kThreads, 0, stream_of(q)>>>(to, from, data<int32_t>(ids), RowOf(rows, dw),
                                                    static_cast<int>(T), D);
      },
      dw, dy);
  launched("embedding backward");
}

}  // namespace capstan::cuda
