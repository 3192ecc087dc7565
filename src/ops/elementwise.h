#pragma once

#include <span>

#include "base/rng.h"
#include "ops/linear.h"
#include "ops/random_key.h"
#include "tensor/queue.h"

namespace capstan {

// y = value, for any floating type.
void fill(Queue& q, Tensor y, float value);
// 0 in all of these; on cuda in a few launches.
void fill_zeros(Queue& q, std::span<const Tensor> all);

// y = x, converted: f32, bf16 and f16 in any combination, rounding to nearest even. Shapes agree;
// matrices may have row strides.
void cast(Queue& q, Tensor y, Tensor x);

// y = x, bit for bit. Any type, the same on both sides; shapes agree. Each may be in the device's
// memory or in q.host(); between two of the latter it is done on return.
void copy(Queue& q, Tensor y, Tensor x);

// y[i] ~ N(0, std^2), value i a function of (key, first + i) alone, so that a slice of a parameter
// is initialised as the whole would be.
void fill_normal(Queue& q, Tensor y, float std, const RngKey& key, int64_t first = 0);

// y[i] ~ U[-bound, bound), value i a function of (key, first + i) alone.
void fill_uniform(Queue& q, Tensor y, float bound, const RngKey& key, int64_t first = 0);

// y = a + b, of one type and shape: the sum that add_rmsnorm stores, bit for bit. y may alias both.
void add(Queue& q, Tensor y, Tensor a, Tensor b);

// y = factor * x. y may alias x.
void scale(Queue& q, Tensor y, Tensor x, float factor);

// y[i] = x[i] / (1 - p) with probability 1 - p, else 0, replaced or added; whether i is kept is a
// function of (key, i) alone (ops/keep.h). The backward pass is the same call on gradients. With
// Write::replace y may alias x. 0 <= p < 1.
void dropout(Queue& q, Tensor y, Tensor x, float p, const RandomKey& key,
             Write mode = Write::replace);

}  // namespace capstan
