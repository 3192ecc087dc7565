#pragma once

#include <string>
#include <vector>

#include "plan/predict.h"

namespace capstan::cli {

// What a part of a step's time goes to: kinds of ops, communication that nothing hides, waiting for
// other stages, and what is left. Parts below 0.05% are left out.
struct StepPart {
  std::string name;
  double seconds = 0;
};
std::vector<StepPart> parts_of(const StepEstimate& step);

// Of what the GPUs multiply at most: FLOPs of the formulas (plan/quick.h) without recomputation.
struct Utilization {
  double whole = 0, causal = 0;
  double peak_flops = 0;  // of one GPU
};
Utilization utilization_of(const StepEstimate& step, const ModelConfig& model, double sequence,
                           int ranks, double peak_flops);

}  // namespace capstan::cli
