#pragma once

#include <span>

#include "base/rng.h"
#include "ops/dropout_mask.h"
#include "ops/linear.h"
#include "tensor/queue.h"

namespace capstan {

// y = value, for any floating type.
void fill(Queue& q, Tensor y, float value);
// Sets all of these to 0; on cuda in a few launches.
void fill_zeros(Queue& q, std::span<const Tensor> all);

// y = x, converted: f32, bf16 and f16 in any combination, rounding to nearest even. Shapes agree;
// matrices may have row strides.
void cast(Queue& q, Tensor y, Tensor x);

// y = x, bit for bit. Any type, the same on both sides; shapes agree. Each may be in the device's
// memory or in q.host(); if both are in q.host(), it is done on return.
void copy(Queue& q, Tensor y, Tensor x);

// y[i] ~ N(0, std^2). Value i depends only on (key, first + i), so a slice of a parameter is
// initialised like the whole.
void fill_normal(Queue& q, Tensor y, float std, const RngKey& key, int64_t first = 0);

// y[i] ~ U[-bound, bound). Value i depends only on (key, first + i).
void fill_uniform(Queue& q, Tensor y, float bound, const RngKey& key, int64_t first = 0);

// y = a + b, of one type and shape: the sum that add_rmsnorm stores, bit for bit. y may alias both.
void add(Queue& q, Tensor y, Tensor a, Tensor b);

// y = factor * x. y may alias x.
void scale(Queue& q, Tensor y, Tensor x, float factor);

// y = x / (1 - p) where the mask keeps the value, else 0, replaced or added. The backward pass is
// the same call on gradients. With Write::replace y may alias x.
void dropout(Queue& q, Tensor y_TI, Tensor x_TI, const DropoutMask& mask,
             Write mode = Write::replace);

}  // namespace capstan
