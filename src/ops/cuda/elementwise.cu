#include "ops/cuda/elementwise.h"
#include "ops/cuda/rng.cuh"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

__device__ int64_t first_item() {
  return blockIdx.x * int64_t{kThreads} + threadIdx.x;
}
__device__ int64_t stride() {
  return gridDim.x * int64_t{kThreads};
}

template <class Y>
__global__ void fill_kernel(Y* y, Y value, int64_t n) {
  for (int64_t i = first_item(); i < n; i += stride()) y[i] = value;
}

// Rows of `width` values, N at a time.
template <int N, class Y, class X>
__global__ void cast_kernel(Y* y, int64_t y_stride, const X* x, int64_t x_stride, int64_t rows,
                            int64_t width, float factor) {
  const int64_t per_row = width / N;
  for (int64_t i = first_item(); i < rows * per_row; i += stride()) {
    const int64_t row = i / per_row, at = i % per_row * N;
    float v[N];
    load(v, x + row * x_stride + at);
#pragma unroll
    for (int k = 0; k < N; ++k) v[k] *= factor;
    store(y + row * y_stride + at, v);
  }
}

template <class T>
__global__ void add_kernel(T* y, const T* a, const T* b, int64_t n) {
  for (int64_t i = first_item(); i < n; i += stride())
    y[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

// Calls body(index of the value, its random word) for the values [first, first + n): one draw gives
// the words of four values.
template <class Body>
__device__ void for_each_word(const Rng& rng, int64_t first, int64_t n, const Body& body) {
  const int64_t begin = first / 4, draws = (first + n + 3) / 4 - begin;
  for (int64_t d = first_item(); d < draws; d += stride()) {
    const auto words = rng.draws(static_cast<uint64_t>(begin + d));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int64_t i = 4 * (begin + d) + k;
      if (i >= first && i < first + n) body(i, k, words);
    }
  }
}

__device__ float uniform(uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

template <class Y>
__global__ void fill_normal_kernel(Y* y, float std, Rng rng, int64_t first, int64_t n) {
  for_each_word(rng, first, n, [&](int64_t i, int k, const std::array<uint32_t, 4>& words) {
    // (0, 1]: the logarithm is finite.
    const float u = (static_cast<float>(words[k & 2]) + 1.0f) * 0x1p-32f;
    const float radius = std * sqrtf(-2.0f * logf(u)), turn = 2.0f * uniform(words[(k & 2) + 1]);
    y[i - first] = from_float<Y>(radius * ((k & 1) == 0 ? cospif(turn) : sinpif(turn)));
  });
}

template <class Y>
__global__ void fill_uniform_kernel(Y* y, float bound, Rng rng, int64_t first, int64_t n) {
  for_each_word(rng, first, n, [&](int64_t i, int k, const std::array<uint32_t, 4>& words) {
    y[i - first] = from_float<Y>(bound * (2.0f * uniform(words[k]) - 1.0f));
  });
}

// A draw for each value; any width.
template <bool kAdd, class Y, class X>
__global__ void dropout_kernel(Y* y, const X* x, MaskArgument mask, int64_t n, int64_t width) {
  const Rng rng = mask.key.read();
  for (int64_t i = first_item(); i < n; i += stride()) {
    const uint64_t half = mask.half_of(mask.ordinal_of(i / width), i % width);
    const bool keeps_it = keeps(mask.keep, rng.draws(half / 8), static_cast<int>(half % 8));
    const float kept = keeps_it ? to_float(x[i]) * mask.keep.factor : 0.0f;
    y[i] = from_float<Y>(kAdd ? to_float(y[i]) + kept : kept);
  }
}

// A draw for eight values of a row.
template <bool kAdd, class Y, class X>
__global__ void wide_dropout_kernel(Y* y, const X* x, MaskArgument mask, int64_t n, int64_t width) {
  const Rng rng = mask.key.read();
  for (int64_t i = 8 * first_item(); i < n; i += 8 * stride()) {
    float v[8], old[8] = {};
    load(v, x + i);
    if (kAdd) load(old, y + i);
    const auto words = rng.draws(mask.half_of(mask.ordinal_of(i / width), i % width) / 8);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float kept = keeps(mask.keep, words, k) ? v[k] * mask.keep.factor : 0.0f;
      v[k] = kAdd ? old[k] + kept : kept;
    }
    store(y + i, v);
  }
}

template <class Y, class X>
void cast_rows(Queue& q, const Tensor& y, const Tensor& x, float factor) {
  const bool dense = y.contiguous() && x.contiguous();
  const int64_t rows = dense ? 1 : x.dim(0), width = dense ? x.numel() : x.dim(1);
  const int64_t y_stride = dense ? width : y.stride(0), x_stride = dense ? width : x.stride(0);
  const bool wide = width % 8 == 0 && y_stride % 8 == 0 && x_stride % 8 == 0 &&
                    reinterpret_cast<uintptr_t>(y.raw()) % (8 * sizeof(Y)) == 0 &&
                    reinterpret_cast<uintptr_t>(x.raw()) % (8 * sizeof(X)) == 0;
  const auto kernel = wide ? cast_kernel<8, Y, X> : cast_kernel<1, Y, X>;
  kernel<<<grid_for(rows * width / (wide ? 8 : 1), kThreads), kThreads, 0, stream_of(q)>>>(
      data<Y>(y), y_stride, data<X>(x), x_stride, rows, width, factor);
}

}  // namespace

void fill(Queue& q, const Tensor& y, float value) {
  const int64_t n = y.numel();
  if (n == 0) return;
  if (value == 0) {  // zero is all zero bytes in every type
    check(cudaMemsetAsync(y.raw(), 0, static_cast<size_t>(y.nbytes()), stream_of(q)), "fill");
    return;
  }
  const auto run = [&]<class Y>(Y converted) {
    fill_kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(q)>>>(data<Y>(y), converted, n);
  };
  switch (y.dtype()) {
    case DType::f64: run(double{value}); break;
    case DType::bf16: run(__float2bfloat16_rn(value)); break;
    case DType::f16: run(__float2half_rn(value)); break;
    default: run(value);
  }
  launched("fill");
}

void cast(Queue& q, const Tensor& y, const Tensor& x) {
  if (x.numel() == 0) return;
  with_type(y.dtype(), [&]<class Y>() {
    with_type(x.dtype(), [&]<class X>() { cast_rows<Y, X>(q, y, x, 1.0f); });
  });
  launched("cast");
}

void copy(Queue& q, const Tensor& y, const Tensor& x) {
  if (x.nbytes() == 0) return;
  check(cudaMemcpyAsync(y.raw(), x.raw(), static_cast<size_t>(x.nbytes()), cudaMemcpyDefault,
                        stream_of(q)),
        "copy");
}

void fill_normal(Queue& q, const Tensor& y, float std, const RngKey& key, int64_t first) {
  if (y.numel() == 0) return;
  with_type(y.dtype(), [&]<class Y>() {
    fill_normal_kernel<<<grid_for(y.numel() / 4 + 1, kThreads), kThreads, 0, stream_of(q)>>>(
        data<Y>(y), std, Rng(key), first, y.numel());
  });
  launched("fill_normal");
}

void fill_uniform(Queue& q, const Tensor& y, float bound, const RngKey& key, int64_t first) {
  if (y.numel() == 0) return;
  with_type(y.dtype(), [&]<class Y>() {
    fill_uniform_kernel<<<grid_for(y.numel() / 4 + 1, kThreads), kThreads, 0, stream_of(q)>>>(
        data<Y>(y), bound, Rng(key), first, y.numel());
  });
  launched("fill_uniform");
}

void add(Queue& q, const Tensor& y, const Tensor& a, const Tensor& b) {
  const int64_t n = y.numel();
  if (n == 0) return;
  with_type(y.dtype(), [&]<class T>() {
    add_kernel<<<grid_for(n, kThreads), kThreads, 0, stream_of(q)>>>(data<T>(y), data<T>(a),
                                                                     data<T>(b), n);
  });
  launched("add");
}

void scale(Queue& q, const Tensor& y, const Tensor& x, float factor) {
  if (x.numel() == 0) return;
  with_types(y.dtype(), x.dtype(), [&]<class Y, class X>() { cast_rows<Y, X>(q, y, x, factor); });
  launched("scale");
}

void dropout(Queue& q, const Tensor& y, const Tensor& x, const DropoutMask& mask, Write mode) {
  const int64_t n = x.numel(), width = x.dim(1);
  if (n == 0) return;
  const bool whole_draws =
      width % 8 == 0 && mask.columns_of(x) % 8 == 0 && mask.first_column % 8 == 0;
  with_types(y.dtype(), x.dtype(), [&]<class Y, class X>() {
    const bool adds = mode == Write::add;
    const bool wide = whole_draws && reinterpret_cast<uintptr_t>(y.raw()) % (8 * sizeof(Y)) == 0 &&
                      reinterpret_cast<uintptr_t>(x.raw()) % (8 * sizeof(X)) == 0;
    const auto kernel =
        wide ? (adds ? wide_dropout_kernel<true, Y, X> : wide_dropout_kernel<false, Y, X>)
             : (adds ? dropout_kernel<true, Y, X> : dropout_kernel<false, Y, X>);
    // As many blocks as run at once: each computes its state from the key.
    const unsigned grid = std::min(grid_for(n / 8 + 1, kThreads), 132u * 8);
    kernel<<<grid, kThreads, 0, stream_of(q)>>>(data<Y>(y), data<X>(x), MaskArgument(mask, x), n,
                                                width);
  });
  launched("dropout");
}

}  // namespace capstan::cuda
