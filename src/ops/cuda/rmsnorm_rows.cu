// rmsnorm with each row in registers. kLanes threads share a row; each has kEach packs of 16 bytes,
// kLanes packs apart, so that neighbours read neighbouring packs, and issues all loads before the
// first use. A warp has several rows if they are short (norms within heads).
#include <utility>

#include "ops/cuda/rmsnorm.cuh"

namespace capstan::cuda {
namespace {

constexpr int block_of(int lanes, int least) {
  return lanes > least ? lanes : least;
}

// Read once: bypasses L1, where the weight stays.
template <class T>
__device__ uint4 fetch(const T* from) {
  return __ldcg(reinterpret_cast<const uint4*>(from));
}
template <class T>
__device__ void put(T* to, const uint4& pack) {
  __stwb(reinterpret_cast<uint4*>(to), pack);
}

// The sum over the kLanes threads of a row, in each of them. All threads of the block must call it.
template <int kLanes>
__device__ float row_sum(float x, float* room) {
  constexpr int kWarps = kLanes / 32;
#pragma unroll
  for (int step = (kLanes < 32 ? kLanes : 32) / 2; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffff, x, step);
  if constexpr (kWarps <= 1) {
    return x;
  } else {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) room[warp] = x;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += room[warp / kWarps * kWarps + i];
    return sum;
  }
}

template <int kLanes, int kEach, bool kAdds, class T>
__global__ void __launch_bounds__(block_of(kLanes, 128))
    rmsnorm_rows_kernel(T* y, Rows y_rows, float* rstd, const T* x, Rows x_rows, const T* residual,
                        T* sum, const T* w, int64_t rows, int D, float eps) {
  constexpr int kBlock = block_of(kLanes, 128), N = kPack<T>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row = blockIdx.x * int64_t{kBlock / kLanes} + threadIdx.x / kLanes;
  // Threads past the last row have no packs, but take part in barriers.
  const int packs = row < rows ? D / N : 0;
  uint4 pack[kEach] = {}, other[kEach] = {};
  const T* const from = x + x_rows(row);
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + i * kLanes < packs) pack[i] = fetch(from + (lane + i * kLanes) * N);
  if constexpr (kAdds) {
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (lane + i * kLanes < packs) other[i] = fetch(residual + row * D + (lane + i * kLanes) * N);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float a[N], b[N];
      unpack<T>(a, pack[i]);
      unpack<T>(b, other[i]);
#pragma unroll
      for (int k = 0; k < N; ++k) a[k] += b[k];
      pack[i] = packed<T>(a);  // the norm uses the sum as stored
      if (lane + i * kLanes < packs) put(sum + row * D + (lane + i * kLanes) * N, pack[i]);
    }
  }
  // Before the first store to y: the compiler moves no load above a store.
  uint4 weight[kEach] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + i * kLanes < packs)
      weight[i] = *reinterpret_cast<const uint4*>(w + (lane + i * kLanes) * N);
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    float v[N];
    unpack<T>(v, pack[i]);
#pragma unroll
    for (int k = 0; k < N; ++k) squares += v[k] * v[k];
  }
  __shared__ float room[kBlock / 32];
  const float mean = row_sum<kLanes>(squares, room) / static_cast<float>(D);
  const float scale = 1.0f / sqrtf(mean + eps);
  if (lane == 0 && row < rows && rstd != nullptr) rstd[row] = scale;
  T* const to = y + y_rows(row);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = (lane + i * kLanes) * N;
    if (at >= packs * N) continue;
    float v[N], factor[N];
    unpack<T>(v, pack[i]);
    unpack<T>(factor, weight[i]);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] = v[k] * scale * factor[k];
    put(to + at, packed<T>(v));
  }
}

// A thread's part of one row.
template <int kEach>
struct RowPacks {
  uint4 gradient[kEach] = {}, value[kEach] = {}, before[kEach] = {};
  float rstd = 0;
};

// Block b has rows [rows * b / B, rows * (b + 1) / B). A thread has the same columns in all its
// rows and sums their part of dw in registers; the block's sums are added in order. The next row is
// loaded before this one is reduced: memory never idles.
template <int kLanes, int kEach, class T>
__global__ void __launch_bounds__(block_of(kLanes, 256), kLanes <= 256 ? 2 : 1)
    rmsnorm_rows_backward_kernel(T* dx, Rows dx_rows, const T* dy, Rows dy_rows, const T* x,
                                 Rows x_rows, const T* w, const float* rstd, float* partial,
                                 int64_t rows, int D, bool adds) {
  constexpr int kBlock = block_of(kLanes, 256), kGroups = kBlock / kLanes, N = kPack<T>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int group = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  const auto packs_of = [&](int64_t row) { return row < end ? D / N : 0; };
  const auto ask = [&](int64_t row) {
    RowPacks<kEach> r;
    const int packs = packs_of(row);
    if (packs == 0) return r;
    const T *const d_from = dy + dy_rows(row), *const from = x + x_rows(row);
    const T* const old = dx + dx_rows(row);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = (lane + i * kLanes) * N;
      if (at >= packs * N) continue;
      r.gradient[i] = fetch(d_from + at);
      r.value[i] = fetch(from + at);
      if (adds) r.before[i] = fetch(old + at);
    }
    r.rstd = rstd[row];
    return r;
  };
  RowPacks<kEach> next = ask(begin + group);
  uint4 weight[kEach] = {};
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + i * kLanes < D / N)
      weight[i] = *reinterpret_cast<const uint4*>(w + (lane + i * kLanes) * N);
  float sums[kEach][N] = {};
  __shared__ float room[2][kBlock / 32];
  int turn = 0;
#pragma unroll 1
  for (int64_t first = begin; first < end; first += kGroups, turn ^= 1) {
    const int64_t row = first + group;
    const RowPacks<kEach> r = next;
    next = ask(row + kGroups);
    const float s = r.rstd;
    float dot = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float g[N], v[N], factor[N];
      unpack<T>(g, r.gradient[i]);
      unpack<T>(v, r.value[i]);
      unpack<T>(factor, weight[i]);
#pragma unroll
      for (int k = 0; k < N; ++k) dot += g[k] * factor[k] * v[k];
    }
    const float c = s * s * s * row_sum<kLanes>(dot, room[turn]) / static_cast<float>(D);
    T* const to = dx + dx_rows(row);
    const int packs = packs_of(row);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      float g[N], v[N], factor[N], out[N];
      unpack<T>(g, r.gradient[i]);
      unpack<T>(v, r.value[i]);
      unpack<T>(factor, weight[i]);
      unpack<T>(out, r.before[i]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[i][k] += g[k] * (v[k] * s);
        out[k] += s * g[k] * factor[k] - c * v[k];
      }
      const int at = (lane + i * kLanes) * N;
      if (at < packs * N) put(to + at, packed<T>(out));
    }
  }
  if (partial == nullptr) return;
  constexpr int kWidth = kLanes * kEach * N;  // D or more
  __shared__ float all[kGroups * kWidth];
#pragma unroll
  for (int i = 0; i < kEach; ++i)
#pragma unroll
    for (int k = 0; k < N; ++k) all[group * kWidth + (lane + i * kLanes) * N + k] = sums[i][k];
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < D; d += kBlock) {
    float sum = 0;
#pragma unroll 8
    for (int g = 0; g < kGroups; ++g) sum += all[g * kWidth + d];
    partial[blockIdx.x * int64_t{D} + d] = sum;
  }
}

// Calls body<kLanes, kEach>() with the first pair that can hold a row; returns whether there is
// one.
template <int... kLanes, int... kEach, class Body>
bool with_lanes(int64_t packs, std::integer_sequence<int, kLanes...>,
                std::integer_sequence<int, kEach...>, const Body& body) {
  bool done = false;
  const auto offer = [&]<int kL, int kE>() {
    if (done || packs > kL * kE) return;
    body.template operator()<kL, kE>();
    done = true;
  };
  (offer.template operator()<kLanes, kEach>(), ...);
  return done;
}

// Whether all have x's type, in rows of whole packs.
template <class... Tensors>
bool in_packs(const Tensor& x, const Tensors&... tensors) {
  const auto fits = [&](const Tensor& t) {
    return !t || (t.dtype() == x.dtype() && packs(static_cast<int>(16 / size_of(t.dtype())), t));
  };
  return fits(x) && (fits(tensors) && ...);
}

}  // namespace

bool rmsnorm_in_registers(Queue& q, const Tensor& y, const Tensor& sum, const Tensor& rstd,
                          const Tensor& x, const Tensor& residual, const Tensor& w, float eps) {
  if (!in_packs(x, y, sum, residual, w)) return false;
  const int64_t D = x.dim(-1), rows = x.numel() / D;
  bool done = false;
  with_type(x.dtype(), [&]<class T>() {
    const auto run = [&]<int kLanes, int kEach>() {
      constexpr int kBlock = block_of(kLanes, 128);
      const auto kernel = sum ? rmsnorm_rows_kernel<kLanes, kEach, true, T>
                              : rmsnorm_rows_kernel<kLanes, kEach, false, T>;
      kernel<<<static_cast<unsigned>(blocks_for(rows, kBlock / kLanes)), kBlock, 0, stream_of(q)>>>(
          data<T>(y), Rows(y), rstd ? data<float>(rstd) : nullptr, data<T>(x), Rows(x),
          data<T>(residual), data<T>(sum), data<T>(w), rows, static_cast<int>(D), eps);
    };
    done = with_lanes(D / kPack<T>,  //
                      std::integer_sequence<int, 8, 8, 16, 32, 32, 32, 64, 128, 256>(),
                      std::integer_sequence<int, 1, 2, 2, 2, 4, 8, 8, 8, 8>(), run);
  });
  return done;
}

bool rmsnorm_backward_in_registers(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& x,
                                   const Tensor& w, const Tensor& rstd, Write mode,
                                   const Tensor& partial) {
  if (!in_packs(x, dx, dy, w)) return false;
  const int64_t D = x.dim(-1), rows = rstd.numel();
  const auto grid = static_cast<unsigned>(partial ? partial.dim(0) : rmsnorm_partials(rows));
  bool done = false;
  with_type(x.dtype(), [&]<class T>() {
    const auto run = [&]<int kLanes, int kEach>() {
      rmsnorm_rows_backward_kernel<kLanes, kEach, T>
          <<<grid, block_of(kLanes, 256), 0, stream_of(q)>>>(
              data<T>(dx), Rows(dx), data<T>(dy), Rows(dy), data<T>(x), Rows(x), data<T>(w),
              data<float>(rstd), partial ? data<float>(partial) : nullptr, rows,
              static_cast<int>(D), mode == Write::add);
    };
    // Two packs each: with their sums of dw and the next row, registers suffice for two blocks.
    done = with_lanes(D / kPack<T>,  //
                      std::integer_sequence<int, 8, 8, 16, 32, 64, 128, 256, 512>(),
                      std::integer_sequence<int, 1, 2, 2, 2, 2, 2, 2, 2>(), run);
  });
  return done;
}

}  // namespace capstan::cuda
