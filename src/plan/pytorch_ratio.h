#pragma once

#include "train/trainer.h"

namespace capstan {

// How many times as long as Capstan's a step of a PyTorch program with the same settings took, on
// one H200 in the same benchmark run (docs/performance.md): of the fastest and of the slowest of
// those that were measured. Nobody measured it on other GPUs or on several.
struct PyTorchRatio {
  double low = 1, high = 1;
  const char* programs = "";  // "compiled"
};
PyTorchRatio pytorch_ratio(const TrainOptions& options);

}  // namespace capstan
