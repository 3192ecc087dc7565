#pragma once

#include "base/fp8.h"
#include "tensor/queue.h"

namespace capstan::cuda {

// What a factor in 8 bits was scaled by, in memory of the device.
struct Fp8Scale {
  uint32_t amax;  // the bits of max |m|, as f32; more than infinity's where m has a NaN
  float inverse;  // 1 / scale
};

// amax = max(amax, |m|): begin with zero. Of integers the order in which maxima meet is all the
// same, so that atomics are as good as an order.
void find_amax(Queue& q, Fp8Scale* scale, const Tensor& m);

// Sets the inverse, and writes the codes of m [R, C]: `plain` as [R, C], `turned` as [C, R'] with
// R' >= R a multiple of 16, zeros after the R-th, and a stride that is such a multiple. Either may
// be absent. C is a multiple of 16.
void convert(Queue& q, Fp8 format, Fp8Scale* scale, const Tensor& m, const Tensor& plain,
             const Tensor& turned);

}  // namespace capstan::cuda
