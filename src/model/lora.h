#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace capstan {

// Low-rank adapters beside frozen weights (Hu et al., 2021): y = x Wᵀ + s · drop(x) Aᵀ Bᵀ.
struct LoraOptions {
  int64_t r = 8;
  double alpha = 16;
  double dropout = 0.05;  // of the adapters' inputs, while training
  bool rslora = false;
  // Which linear maps of every block have one: `mlp` is gate, up and down.
  bool query = true, key = false, value = true, projection = false, mlp = false;
  bool head = false;

  double scale() const;  // alpha / r, or alpha / √r with rslora
};

// Throws Fault::usage where no model can have such adapters.
void check_lora(const LoraOptions& options);

// Which pass of a run a dropout mask belongs to: the same key gives the same masks, so that what is
// recomputed, and a run that is resumed, sees them again.
struct StepKey {
  uint64_t seed = 0, step = 0;
  uint64_t micro = 0;  // number of the micro-batch in its step
  Tensor at{};  // a RandomKey's words, which the device reads in place of the three; or absent
};

}  // namespace capstan
