#pragma once

#include <optional>
#include <string>

#include "plan/fit.h"
#include "plan/predict.h"
#include "train/setup.h"

// What `capstan plan` prints.
namespace capstan::cli {

// The bytes that each rank needs on its device.
struct RankBytes {
  int64_t least = 0, most = 0;
};

// What is planned: the run itself if all its inputs are on disk. If the model, its tokenizer or the
// data are missing: the largest batch that the recipe allows. Any other problem is an error, as in
// the run.
struct Planned {
  TrainOptions options;
  std::string model;
  std::string basis;
  std::optional<int64_t> steps;
  std::optional<RunInputs> inputs;  // if all of them are on disk
  RankBytes ranks;                  // if there are several
  bool elsewhere = false;           // on a GPU that is not this machine's
};

// Predicted times on the calibrated machine.
struct Time {
  Calibration calibration;
  StepEstimate step;
  std::optional<double> run_seconds;  // all steps, if their number is known
};

// The largest micro-batch and sequence that fit; 0: none does.
struct Largest {
  int64_t micro_batch = 0, sequence = 0;
};

void print_plan_json(const Planned& p, const Fit& fit, const Largest& largest,
                     const std::optional<Time>& time);
// `cuda_share`: a line about what CUDA takes of the GPU's memory.
void print_plan_text(const Planned& p, const Fit& fit, const Largest& largest,
                     const std::optional<Time>& time, const std::string& cuda_share);

}  // namespace capstan::cli
