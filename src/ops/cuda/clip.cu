#include "ops/cuda/optimizer.h"
#include "ops/cuda/tensor_table.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256, kAdders = 1024;

struct SumEntry {
  AnyPointer x;
  int64_t n;
  unsigned first_block;
  bool wide;
};

// The sum over a block, always in the same order.
template <int kSize>
__device__ double block_sum_f64(double mine) {
  __shared__ double room[kSize];
  room[threadIdx.x] = mine;
  for (int step = kSize / 2; step > 0; step /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < step) room[threadIdx.x] += room[threadIdx.x + step];
  }
  return room[0];
}

template <int N>
__device__ double sum_of_squares(AnyPointer x, int64_t begin, int64_t end) {
  double sum = 0;
  for (int64_t i = begin + int64_t{threadIdx.x} * N; i < end; i += kThreads * N) {
    float v[N];
    load(v, x + i);
#pragma unroll
    for (int k = 0; k < N; ++k) sum += double{v[k]} * double{v[k]};
  }
  return sum;
}

__global__ void sum_squares_kernel(const __grid_constant__ TensorTable<SumEntry> table,
                                   double* partials) {
  const SumEntry& e = entry_of_block(table);
  const int64_t begin = tile_of_block(e) * kSumTile, end = min(begin + kSumTile, e.n);
  const double mine =
      e.wide ? sum_of_squares<8>(e.x, begin, end) : sum_of_squares<1>(e.x, begin, end);
  const double sum = block_sum_f64<kThreads>(mine);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void add_partials_kernel(double* sum, const double* partials, int64_t count) {
  double mine = 0;
  for (int64_t i = threadIdx.x; i < count; i += kAdders) mine += partials[i];
  const double all = block_sum_f64<kAdders>(mine);
  if (threadIdx.x == 0) *sum += all;
}

__global__ void clip_scale_kernel(float* scale, const double* sum, float max_norm,
                                  const double* loss, double times) {
  const double squares = *sum;
  *scale =
      isfinite(squares) && (loss == nullptr || isfinite(*loss))
          ? static_cast<float>(fmin(1.0, double{max_norm} / (sqrt(squares) / times + 1e-6)) / times)
          : __int_as_float(0x7fc00000);
}

}  // namespace

namespace {

// Returns how many there are.
int64_t sum_tiles(Queue& q, const Tensor& partials, std::span<const Tensor> all) {
  int64_t count = 0;
  const auto launch = [&](const TensorTable<SumEntry>& table, unsigned blocks) {
    sum_squares_kernel<<<blocks, kThreads, 0, stream_of(q)>>>(table,
                                                              data<double>(partials) + count);
    count += blocks;
  };
  TensorBatch<SumEntry, decltype(launch)> batch(launch);
  for (const Tensor& x : all)
    if (x.numel() > 0)
      batch.add({any(x), x.numel(), 0, walks_in_packs(8, x)}, sum_partials(x.numel()));
  batch.flush();
  return count;
}

void add_tiles(Queue& q, const Tensor& sum, const Tensor& partials, int64_t count) {
  if (count == 0) return;
  add_partials_kernel<<<1, kAdders, 0, stream_of(q)>>>(data<double>(sum), data<double>(partials),
                                                       count);
  launched("sum_squares");
}

}  // namespace

void sum_squares(Queue& q, const Tensor& sum, std::span<const Tensor> all, const Tensor& partials) {
  add_tiles(q, sum, partials, sum_tiles(q, partials, all));
}

void partial_squares(Queue& q, const Tensor& partials, std::span<const Tensor> all) {
  sum_tiles(q, partials, all);
  launched("partial_squares");
}

void add_partials(Queue& q, const Tensor& sum, const Tensor& partials) {
  add_tiles(q, sum, partials, partials.numel());
}

void clip_scale(Queue& q, const Tensor& scale, const Tensor& sum, float max_norm,
                const Tensor& loss, double times) {
  clip_scale_kernel<<<1, 1, 0, stream_of(q)>>>(data<float>(scale), data<double>(sum), max_norm,
                                               data<double>(loss), times);
  launched("clip_scale");
}

}  // namespace capstan::cuda
