#pragma once

#include "train/trainer.h"

namespace capstan {

// The step time of PyTorch programs divided by Capstan's, with the same settings in one benchmark
// run on an H200 (docs/performance.md): for the fastest and the slowest program that was measured.
// Other GPUs, and several, were not measured.
struct PyTorchRatio {
  double low = 1, high = 1;
  const char* programs = "";  // "compiled"
};
PyTorchRatio pytorch_ratio(const TrainOptions& options);

}  // namespace capstan
