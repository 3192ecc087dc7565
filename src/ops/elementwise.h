#pragma once

#include "base/rng.h"
#include "tensor/queue.h"

namespace capstan {

// y = value, for any floating type.
void fill(Queue& q, Tensor y, float value);

// y = x, converted: f32, bf16 and f16 in any combination, rounding to nearest even. Shapes agree;
// matrices may have row strides.
void cast(Queue& q, Tensor y, Tensor x);

// y[i] ~ N(0, std^2), value i a function of (key, first + i) alone, so that a slice of a parameter
// is initialised as the whole would be.
void fill_normal(Queue& q, Tensor y, float std, const RngKey& key, int64_t first = 0);

// y[i] = x[i] / (1 - p) with probability 1 - p, else 0; whether i is kept is a function of
// (key, i) alone. The backward pass is the same call on gradients. y may alias x. 0 <= p < 1.
void dropout(Queue& q, Tensor y, Tensor x, float p, const RngKey& key);

}  // namespace capstan
