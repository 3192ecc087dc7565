#pragma once

#include <span>

#include "ops/linear.h"
#include "tensor/queue.h"

namespace capstan {

// y = x₀ + x₁ + …, or y += that: added in this order in f32 (f64 for f64 operands) and rounded once
// to y's type. All have the same number of values and one type of f32, bf16 and f64. y may be one
// of the x. At most kMostSlices of them; all are readable from the queue's device.
//
// With groups, which divide the number of x, neighbours are added first: of x₀ … x₃ in two groups
// the sum is (x₀ + x₁) + (x₂ + x₃).
inline constexpr size_t kMostSlices = 64;
void sum_slices(Queue& q, Tensor y, std::span<const Tensor> x, Write mode = Write::replace,
                int groups = 1);

}  // namespace capstan
