#include "ops/cuda/device.cuh"
#include "ops/cuda/sum_slices.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Slices {
  const T* x[kMostSlices];
  int count;
};

__device__ double to_sum(double x) {
  return x;
}
template <class T>
__device__ float to_sum(T x) {
  return to_float(x);
}

template <class T, class Sum>
__global__ void sum_kernel(T* y, const __grid_constant__ Slices<T> slices, bool add, int64_t n) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * kThreads) {
    Sum sum = add ? to_sum(y[i]) : Sum(0);
    for (int s = 0; s < slices.count; ++s) sum += to_sum(slices.x[s][i]);
    if constexpr (std::is_same_v<T, double>)
      y[i] = sum;
    else
      y[i] = from_float<T>(sum);
  }
}

template <class T, class Sum>
void launch(Queue& q, const Tensor& y, std::span<const Tensor> x, Write mode) {
  Slices<T> slices{};
  for (const Tensor& t : x) slices.x[slices.count++] = data<T>(t);
  sum_kernel<T, Sum><<<grid_for(y.numel(), kThreads), kThreads, 0, stream_of(q)>>>(
      data<T>(y), slices, mode == Write::add, y.numel());
}

}  // namespace

void sum_slices(Queue& q, const Tensor& y, std::span<const Tensor> x, Write mode) {
  if (y.numel() == 0) return;
  if (y.dtype() == DType::f64)
    launch<double, double>(q, y, x, mode);
  else
    with_type(y.dtype(), [&]<class T>() { launch<T, float>(q, y, x, mode); });
  launched("sum_slices");
}

}  // namespace capstan::cuda
