#pragma once

#include <optional>
#include <string>

#include "plan/run_on.h"
#include "train/setup.h"

namespace capstan::cli {

// What is planned: the run itself if all its inputs are on disk. If the model or its tokenizer is
// missing but the data are there, with estimated lengths; without data, the largest batch that the
// recipe allows. Any other problem is an error, as in the run.
struct Planned {
  TrainOptions options;
  std::string model;
  std::string basis;
  std::optional<int64_t> steps;
  std::optional<RunInputs> inputs;  // of the data
  bool rough = false;               // their lengths are estimated
  bool default_length = false;      // of pretraining: nothing says how long to train
  RankBytes ranks;                  // if there are several
  bool elsewhere = false;           // on a GPU that is not this machine's

  PlannedTask task(const Recipe& recipe) const {
    return {recipe, options, inputs ? &*inputs : nullptr, steps};
  }
};
Planned plan_for(const Recipe& recipe, Task task);

}  // namespace capstan::cli
