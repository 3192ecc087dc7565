#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace capstan {

// Low-rank adapters on frozen weights (Hu et al., 2021): y = x Wᵀ + s · drop(x) Aᵀ Bᵀ.
struct LoraOptions {
  int64_t r = 8;
  double alpha = 16;
  double dropout = 0.05;  // on the adapters' inputs, while training
  bool rslora = false;
  // Linear maps of every block with an adapter: `mlp` is gate, up and down.
  bool query = true, key = false, value = true, projection = false, mlp = false;
  bool head = false;

  double scale() const;  // alpha / r, or alpha / √r with rslora
};

// Throws Fault::usage for options that no model can have.
void check_lora(const LoraOptions& options);

// Identifies the step of a run that a dropout mask belongs to: the same key gives a token the same
// mask, in recomputation, in resumed runs and in any micro-batch.
struct StepKey {
  uint64_t seed = 0, step = 0;
  Tensor at{};  // a RandomKey's words, which the device reads instead of the two above; or absent
  Tensor ordinals_T{};  // of the batch's tokens; the forward pass sets it
};

}  // namespace capstan
