// The entry points, and rmsnorm for any mix of types, any alignment and any length.
#include "ops/cuda/rmsnorm.cuh"

namespace capstan::cuda {
namespace {

// A warp normalizes a row, without a barrier; a block does it for long rows. In the backward pass,
// each row of a block needs shared memory for its part of dw.
constexpr int kBlock = 256, kWarp = 32, kShort = 2048;
constexpr int64_t kMostShared = 200 << 10;

template <int kThreads>
__device__ int lane() {
  return static_cast<int>(threadIdx.x) % kThreads;
}

// y = rmsnorm(x), or of x + residual, which is stored in `sum`.
template <int N, int kThreads, class P>
__global__ void rmsnorm_kernel(P y, Rows y_rows, float* rstd, P x, Rows x_rows, P residual, P sum,
                               P w, int64_t rows, int64_t D, float eps, bool adds) {
  const int64_t row = blockIdx.x * int64_t{kBlock / kThreads} + threadIdx.x / kThreads;
  if (row >= rows) return;
  const P from = adds ? sum + row * D : x + x_rows(row);
  float squares = 0;
  for (int64_t d = lane<kThreads>() * N; d < D; d += kThreads * N) {
    float v[N];
    load(v, x + (x_rows(row) + d));
    if (adds) {
      float r[N];
      load(r, residual + (row * D + d));
#pragma unroll
      for (int k = 0; k < N; ++k) v[k] = rounded(sum, v[k] + r[k]);
      store(sum + (row * D + d), v);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) squares += v[k] * v[k];
  }
  __shared__ float room[kBlock / 32];
  const float scale =
      1.0f / sqrtf(block_sum<kThreads>(squares, room) / static_cast<float>(D) + eps);
  if (lane<kThreads>() == 0 && rstd != nullptr) rstd[row] = scale;
  // Each thread reads only what it read or wrote itself.
  for (int64_t d = lane<kThreads>() * N; d < D; d += kThreads * N) {
    float v[N], weight[N];
    load(v, from + d);
    load(weight, w + d);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] * scale * weight[k];
    store(y + (y_rows(row) + d), v);
  }
}

// Block b processes rows [rows * b / P, rows * (b + 1) / P) and sums their part of dw in shared
// memory, one sum per group of kThreads threads; a thread has the same columns in every row.
template <int N, int kThreads, class P>
__global__ void rmsnorm_backward_kernel(P dx, Rows dx_rows, P dy, Rows dy_rows, P x, Rows x_rows,
                                        P w, const float* rstd, float* partial, int64_t rows,
                                        int64_t D, bool adds) {
  constexpr int kGroups = kBlock / kThreads;
  extern __shared__ float sums[];  // [kGroups, D], if partial is present
  __shared__ float room[2][kBlock / 32];
  const int group = static_cast<int>(threadIdx.x) / kThreads;
  float* const mine = sums + group * D;
  if (partial != nullptr)
    for (int64_t d = lane<kThreads>() * N; d < D; d += kThreads * N)
#pragma unroll
      for (int k = 0; k < N; ++k) mine[d + k] = 0;
  const int64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  int turn = 0;
  for (int64_t row = begin + group; row < end; row += kGroups, turn ^= 1) {
    const float s = rstd[row];
    float dot = 0;
    for (int64_t d = lane<kThreads>() * N; d < D; d += kThreads * N) {
      float g[N], v[N], weight[N];
      load(g, dy + (dy_rows(row) + d));
      load(v, x + (x_rows(row) + d));
      load(weight, w + d);
#pragma unroll
      for (int k = 0; k < N; ++k) dot += g[k] * weight[k] * v[k];
    }
    const float c = s * s * s * block_sum<kThreads>(dot, room[turn]) / static_cast<float>(D);
    for (int64_t d = lane<kThreads>() * N; d < D; d += kThreads * N) {
      float g[N], v[N], weight[N], out[N];
      load(g, dy + (dy_rows(row) + d));
      load(v, x + (x_rows(row) + d));
      load(weight, w + d);
      if (adds) load(out, dx + (dx_rows(row) + d));
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (partial != nullptr) mine[d + k] += g[k] * (v[k] * s);
        const float value = s * g[k] * weight[k] - c * v[k];
        out[k] = adds ? out[k] + value : value;
      }
      store(dx + (dx_rows(row) + d), out);
    }
  }
  if (partial == nullptr) return;
  __syncthreads();
  for (int64_t d = threadIdx.x; d < D; d += kBlock) {
    float sum = 0;
    for (int g = 0; g < kGroups; ++g) sum += sums[g * D + d];
    partial[blockIdx.x * D + d] = sum;
  }
}

// dw[d] += Σ_b partial[b, d]: 32 sums over every 32nd b, then a tree reduction.
template <class P>
__global__ void fold_kernel(P dw, const float* partial, int64_t blocks, int64_t D) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int64_t column = blockIdx.x * int64_t{kWarp} + lane;
  float sum = 0;
  if (column < D)
#pragma unroll 4
    for (int64_t b = warp; b < blocks; b += kWarp) sum += partial[b * D + column];
  __shared__ float room[kWarp][kWarp + 1];
  room[warp][lane] = sum;
  __syncthreads();
  const float added = warp_sum(room[lane][warp]);
  const int64_t d = blockIdx.x * int64_t{kWarp} + warp;
  if (lane != 0 || d >= D) return;
  float total[1];
  load(total, dw + d);
  total[0] += added;
  store(dw + d, total);
}

template <int N, int kThreads, class P>
void launch_rmsnorm(Queue& q, P y, const Tensor& y_, const Tensor& rstd, P x, const Tensor& x_,
                    P residual, P sum, P w, float eps, bool adds) {
  const int64_t D = x_.dim(-1), rows = x_.numel() / D;
  const auto grid = static_cast<unsigned>(blocks_for(rows, kBlock / kThreads));
  rmsnorm_kernel<N, kThreads>
      <<<grid, kBlock, 0, stream_of(q)>>>(y, Rows(y_), rstd ? data<float>(rstd) : nullptr, x,
                                          Rows(x_), residual, sum, w, rows, D, eps, adds);
}

// sum and residual may both be absent.
void run(Queue& q, const Tensor& y, const Tensor& sum, const Tensor& rstd, const Tensor& x,
         const Tensor& residual, const Tensor& w, float eps) {
  if (x.numel() == 0 || rmsnorm_in_registers(q, y, sum, rstd, x, residual, w, eps)) return;
  const bool wide = packs(8, y, x, w) && packs(8, sum, residual);
  const bool is_short = x.dim(-1) <= kShort;
  with_pointers(
      [&]<class P>(P to, P sums, P from, P other, P weight) {
        const auto go = [&]<int N, int kThreads>() {
          launch_rmsnorm<N, kThreads>(q, to, y, rstd, from, x, other, sums, weight, eps, bool{sum});
        };
        if (wide)
          is_short ? go.template operator()<8, kWarp>() : go.template operator()<8, kBlock>();
        else
          is_short ? go.template operator()<1, kWarp>() : go.template operator()<1, kBlock>();
      },
      y, sum, x, residual, w);
}

template <int N, int kThreads, class P>
void launch_backward(Queue& q, P dx, const Tensor& dx_, P dy, const Tensor& dy_, P x,
                     const Tensor& x_, P w, const Tensor& rstd, const Tensor& partial, bool adds) {
  const int64_t D = x_.dim(-1), rows = rstd.numel();
  const auto room = partial ? static_cast<int>(D) * (kBlock / kThreads) * 4 : 0;
  const auto kernel = rmsnorm_backward_kernel<N, kThreads, P>;
  require(room <= shared_room(q), Fault::device,
          "GPU: rmsnorm_backward takes rows of {} values at the most, not {}", shared_room(q) / 4,
          D);
  allow(kernel, room);
  const auto grid = static_cast<unsigned>(partial ? partial.dim(0) : rmsnorm_partials(rows));
  kernel<<<grid, kBlock, static_cast<size_t>(room), stream_of(q)>>>(
      dx, Rows(dx_), dy, Rows(dy_), x, Rows(x_), w, data<float>(rstd),
      partial ? data<float>(partial) : nullptr, rows, D, adds);
}

void run_backward(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& w,
                  const Tensor& rstd, Write mode, const Tensor& partial) {
  const int64_t D = x.dim(-1);
  const bool wide = packs(8, dx, dy, x, w);
  const bool is_short = D * (kBlock / kWarp) * 4 <= std::min(kMostShared, shared_room(q));
  with_pointers(
      [&]<class P>(P d_x, P d_y, P from, P weight) {
        const auto go = [&]<int N, int kThreads>() {
          launch_backward<N, kThreads>(q, d_x, dx, d_y, dy, from, x, weight, rstd, partial,
                                       mode == Write::add);
        };
        if (wide)
          is_short ? go.template operator()<8, kWarp>() : go.template operator()<8, kBlock>();
        else
          is_short ? go.template operator()<1, kWarp>() : go.template operator()<1, kBlock>();
      },
      dx, dy, x, w);
}

}  // namespace

void rmsnorm(Queue& q, const Tensor& y, const Tensor& rstd, const Tensor& x, const Tensor& w,
             float eps) {
  run(q, y, {}, rstd, x, {}, w, eps);
  launched("rmsnorm");
}

void add_rmsnorm(Queue& q, const Tensor& y, const Tensor& sum, const Tensor& rstd, const Tensor& x,
                 const Tensor& residual, const Tensor& w, float eps) {
  run(q, y, sum, rstd, x, residual, w, eps);
  launched("add_rmsnorm");
}

void rmsnorm_backward(Queue& q, const Tensor& dx, const Tensor& dw, const Tensor& dy,
                      const Tensor& x, const Tensor& w, const Tensor& rstd, Write mode,
                      const Tensor& partial) {
  if (x.numel() == 0) return;
  if (!rmsnorm_backward_in_registers(q, dx, dy, x, w, rstd, mode, partial))
    run_backward(q, dx, dy, x, w, rstd, mode, partial);
  if (dw)
    with_pointers(
        [&]<class P>(P to) {
          fold_kernel<<<static_cast<unsigned>(blocks_for(x.dim(-1), kWarp)), kWarp * kWarp, 0,
                        stream_of(q)>>>(to, data<float>(partial), partial.dim(0), x.dim(-1));
        },
        dw);
  launched("rmsnorm backward");
}

}  // namespace capstan::cuda
