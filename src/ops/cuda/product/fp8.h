#pragma once

#include "base/fp8.h"
#include "tensor/queue.h"

namespace capstan::cuda {

// *amax = max(*amax, |m|), NaN if m has one: initialize it to zero. It is an integer maximum, since
// the bits of magnitudes are ordered like the magnitudes, so the result does not depend on the
// order.
void find_amax(Queue& q, float* amax, const Tensor& m);

// Sets *inverse = 1 / scale, with the scale that follows from *amax, and writes the codes of m [R,
// C]: `plain` as [R, C], `rotated` as the transpose [C, R'] with R' >= R a multiple of 16, zeros
// after the R-th, and a stride that is a multiple of 16. Either may be absent. C is a multiple of
// 16.
void convert(Queue& q, Fp8 format, const float* amax, float* inverse, const Tensor& m,
             const Tensor& plain, const Tensor& rotated);

}  // namespace capstan::cuda
