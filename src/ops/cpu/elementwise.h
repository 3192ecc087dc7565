#pragma once

#include "ops/dropout_mask.h"
#include "ops/linear.h"
#include "tensor/tensor.h"

namespace capstan::cpu {

void fill(const Tensor& y, float value);
void cast(const Tensor& y, const Tensor& x);
void copy(const Tensor& y, const Tensor& x);
void fill_normal(const Tensor& y, float std, const RngKey& key, int64_t first);
void fill_uniform(const Tensor& y, float bound, const RngKey& key, int64_t first);
void add(const Tensor& y, const Tensor& a, const Tensor& b);
void scale(const Tensor& y, const Tensor& x, float factor);
void dropout(const Tensor& y, const Tensor& x, const DropoutMask& mask, Write mode);

}  // namespace capstan::cpu
