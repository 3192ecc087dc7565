#pragma once

#include "ops/elementwise.h"

namespace capstan::cuda {

void fill(Queue& q, const Tensor& y, float value);
void fill_zeros(Queue& q, std::span<const Tensor> all);
void cast(Queue& q, const Tensor& y, const Tensor& x);
void copy(Queue& q, const Tensor& y, const Tensor& x);
void fill_normal(Queue& q, const Tensor& y, float std, const RngKey& key, int64_t first);
void fill_uniform(Queue& q, const Tensor& y, float bound, const RngKey& key, int64_t first);
void add(Queue& q, const Tensor& y, const Tensor& a, const Tensor& b);
void scale(Queue& q, const Tensor& y, const Tensor& x, float factor);
void dropout(Queue& q, const Tensor& y, const Tensor& x, const DropoutMask& mask, Write mode);

}  // namespace capstan::cuda
