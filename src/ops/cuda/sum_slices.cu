#include "ops/cuda/device.cuh"
#include "ops/cuda/sum_slices.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Slices {
  const T* x[kMostSlices];
  int groups, each;
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
    for (int g = 0; g < slices.groups; ++g) {
      Sum part = Sum(-0.0);  // so that a group of one is its term
      for (int s = 0; s < slices.each; ++s) part += to_sum(slices.x[g * slices.each + s][i]);
      sum += part;
    }
    if constexpr (std::is_same_v<T, double>)
      y[i] = sum;
    else
      y[i] = from_float<T>(sum);
  }
}

template <class T, class Sum>
void launch(Queue& q, const Tensor& y, std::span<const Tensor> x, Write mode, int groups) {
  const int count = static_cast<int>(x.size());
  if (groups == 1) groups = count;
  Slices<T> slices{.groups = groups, .each = count / groups};
  for (int s = 0; s < count; ++s) slices.x[s] = data<T>(x[static_cast<size_t>(s)]);
  sum_kernel<T, Sum><<<grid_for(y.numel(), kThreads), kThreads, 0, stream_of(q)>>>(
      data<T>(y), slices, mode == Write::add, y.numel());
}

}  // namespace

void sum_slices(Queue& q, const Tensor& y, std::span<const Tensor> x, Write mode, int groups) {
  if (y.numel() == 0) return;
  if (y.dtype() == DType::f64)
    launch<double, double>(q, y, x, mode, groups);
  else
    with_type(y.dtype(), [&]<class T>() { launch<T, float>(q, y, x, mode, groups); });
  launched("sum_slices");
}

}  // namespace capstan::cuda
