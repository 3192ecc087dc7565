#pragma once

#include "base/fp8.h"
#include "tensor/queue.h"

namespace capstan::cuda {

// *amax = max(*amax, |m|), NaN where m has one: begin with zero. It is a maximum of integers, among
// which the bits of magnitudes have their order, and so the same in whatever order they meet.
void find_amax(Queue& q, float* amax, const Tensor& m);

// Sets *inverse = 1 / scale, with the scale that follows from *amax, and writes the codes of m
// [R, C]: `plain` as [R, C], `turned` as [C, R'] with R' >= R a multiple of 16, zeros after the
// R-th, and a stride that is such a multiple. Either may be absent. C is a multiple of 16.
void convert(Queue& q, Fp8 format, const float* amax, float* inverse, const Tensor& m,
             const Tensor& plain, const Tensor& turned);

}  // namespace capstan::cuda
