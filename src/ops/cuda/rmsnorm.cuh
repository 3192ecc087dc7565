#pragma once

#include "ops/cuda/device.cuh"
#include "ops/cuda/rmsnorm.h"

// Shared by the kernels of rmsnorm.
namespace capstan::cuda {

// The starts of the rows of a [T, D] or [T, H, D] tensor.
struct Rows {
  uint32_t H;
  int64_t stride_t, stride_h;

  explicit Rows(const Tensor& t)
      : H(t.rank() == 3 ? static_cast<uint32_t>(t.dim(1)) : 1),
        stride_t(t.stride(0)),
        stride_h(t.rank() == 3 ? t.stride(1) : 0) {}
  __device__ int64_t operator()(int64_t row) const {
    if (H == 1) return row * stride_t;
    const uint32_t t = static_cast<uint32_t>(row) / H, h = static_cast<uint32_t>(row) % H;
    return t * stride_t + h * stride_h;
  }
};

// Keeps each row in the registers of 8 to 1024 threads and reads it once: for tensors of one type
// whose rows begin and end at multiples of 16 bytes and fit in registers. Otherwise returns false
// and does nothing. `sum` and `residual` may both be absent; so may rstd, and partial.
bool rmsnorm_in_registers(Queue& q, const Tensor& y, const Tensor& sum, const Tensor& rstd,
                          const Tensor& x, const Tensor& residual, const Tensor& w, float eps);
bool rmsnorm_backward_in_registers(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& x,
                                   const Tensor& w, const Tensor& rstd, Write mode,
                                   const Tensor& partial);

}  // namespace capstan::cuda
