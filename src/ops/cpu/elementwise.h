#pragma once

#include "base/rng.h"
#include "tensor/tensor.h"

namespace capstan::cpu {

void fill(const Tensor& y, float value);
void cast(const Tensor& y, const Tensor& x);
void fill_normal(const Tensor& y, float std, const RngKey& key, int64_t first);
void dropout(const Tensor& y, const Tensor& x, float p, const RngKey& key);

}  // namespace capstan::cpu
