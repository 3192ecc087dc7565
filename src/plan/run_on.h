#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "machine/memory.h"
#include "plan/calibration.h"
#include "plan/gpu_catalogue.h"
#include "plan/predict.h"
#include "plan/ranks_plan.h"
#include "train/setup.h"

// A run on machines that its user may have or get: what its ranks need there, and how long a step
// takes. Everything comes from the run's own options, on `sim`.
namespace capstan {

// A run that is planned.
struct PlannedTask {
  Recipe recipe;
  TrainOptions options;                // of one rank, as in setup.h
  const RunInputs* inputs = nullptr;   // if all of them are on disk; else batches are the largest
  std::optional<int64_t> steps = {};   // of the whole run, if their number is known
  int64_t sampled_steps = kMostSteps;  // of the data, whose mean is the time of a step
  // The options of this recipe with another micro-batch, if the program is to choose it.
  std::function<TrainOptions(const Recipe&)> options_with = {};
};

// What a run may have: machines that are alike.
struct Machines {
  int devices = 1, count = 1;  // ranks on each, and how many of them
  Room available = {};         // to each rank
  std::optional<Calibration> calibration = {};
  std::optional<Network> network = {};  // between the ranks, if there are several

  int ranks() const { return devices * count; }
};

// GPUs that machines usually have, at most.
inline constexpr int kUsualGpus = 8;

// What the user said of machines with one GPU of the catalogue; it takes precedence.
struct Stated {
  std::string gpu = {};                    // as in the catalogue
  std::optional<int64_t> bytes = {};       // that a rank may have of its GPU
  std::optional<int64_t> host_bytes = {};  // of each machine, for its ranks together
  std::optional<double> across = {};       // bytes/s of each GPU between machines, each way
  std::optional<Calibration> calibration = {};
};

// Machines with so many GPUs of the catalogue each, or more machines, if one holds fewer: times as
// by calibration_of, links as by links_of, and what was stated, if it is of this GPU.
Machines machines_with(const GpuModel& gpu, int devices, int count, const Stated& stated = {});

// What connects the ranks of such machines: as the calibration has it, or else as by data sheet;
// `across`, if given, is what each GPU has between machines.
Network links_of(const GpuModel& gpu, const Calibration& calibration, int devices, int machines,
                 std::optional<double> across = {});

// The run on a GPU of the catalogue, in the precision that it takes there: without bf16, f16.
TrainOptions on_gpu(const PlannedTask& task, const GpuModel& gpu);

// Options with what connects the ranks; whether sums need room stays as it is.
TrainOptions connected(TrainOptions options, const std::optional<Network>& network);

// Micro-batches of each rank in a step.
int64_t micro_batches_of(const Recipe& recipe, const TrainOptions& options);

// Samples in a step, at most: those of the data, if they are fewer than the recipe says.
int64_t samples_of_step(const PlannedTask& task);

// The time of a step with these options, whose ranks are set; none if the machines' is unknown.
// Of data it is that of a step with the mean number of tokens.
std::optional<StepEstimate> estimate(const PlannedTask& task, const TrainOptions& options,
                                     const Machines& machines);

// What of a recipe gives these options.
Strategy strategy_of(const TrainOptions& options);

// Bytes that some rank needs at least, by formula: weights, gradients that outlive a micro-batch,
// and the optimizer's state on the device.
double least_bytes(const TrainOptions& options);

// A run as it would be on some machines.
struct RunThere {
  TrainOptions options;  // of the rank that needs most
  RankBytes ranks;
  bool fits = false;
  std::optional<StepEstimate> step;  // if it fits
};
// On so many ranks, with the recipe's mesh and the least recomputation that fits, if the recipe
// leaves that open. If it leaves the strategy open: of the two that share least and fit, the
// faster, or of all that fit if these recompute; if none fits, the one that needs least. None if
// the mesh does not divide the ranks.
std::optional<RunThere> run_on(const PlannedTask& task, const Machines& machines);

}  // namespace capstan
