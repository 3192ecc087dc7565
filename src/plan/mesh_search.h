#pragma once

#include <string>
#include <utility>
#include <vector>

#include "machine/memory.h"
#include "plan/calibration.h"
#include "plan/predict.h"

namespace capstan {

// How the GPUs of a run may share its work: the keys of a recipe that a search chooses.
struct MeshChoice {
  int tensor = 1, context = 1, pipeline = 1;
  bool overlap = false;  // of what ranks that share each layer exchange
  PipelineChoice schedule = {};
  Strategy::Kind strategy = Strategy::automatic;  // if no ranks share the model's state
  int64_t micro_batch_size = 1;
  Recompute recompute = Recompute::none;

  // The recipe with these keys.
  Recipe in(Recipe recipe) const;
  bool operator==(const MeshChoice&) const = default;
};
struct MeshQuestion {
  Recipe recipe;         // its global batch, and what a search does not choose
  TrainOptions options;  // of the run; the longest sample is that of its limits
  int devices = 1;       // of each machine
  int machines = 1;
  Network network;
  Calibration calibration;
  Room available;  // to each rank
};

struct MeshPlan {
  MeshChoice choice;
  TrainOptions options;       // of the rank that needs most
  int data_ranks = 1;         // with micro-batches of their own
  int64_t micro_batches = 1;  // of each in a step
  int64_t bytes = 0;          // on the device of that rank
  StepEstimate step = {};
  double tokens_per_second = 0;  // of all ranks, with full samples

  // What the search chose, as keys of the recipe with their values. All that it can choose.
  std::vector<std::pair<std::string, std::string>> keys() const;
};

struct MeshSearch {
  std::vector<MeshPlan> best;  // the fastest first
  int64_t considered = 0;      // choices that the ranks and the model allow,
  int64_t planned = 0;  // and those of them that were simulated: others cannot be among the best
  int64_t least_bytes = 0;  // that any of them needs, if none fits
};

// Tries meshes and returns those with which a step is shortest and every rank fits. Memory is that
// of Trainer::plan, time that of estimate_largest.
//
// tensor: powers of two within a machine; pipeline: divisors of the ranks, by 1f1b, interleaved:2
// and zero_bubble; context: powers of two, for samples of 8192 tokens or more, or if nothing else
// fits; ddp, zero1, zero2 and, without zero_bubble, zero3; micro-batches: powers of two; and the
// least of no, selective and block recomputation that fits.
MeshSearch search_meshes(const MeshQuestion& question, int most = 10);

// The options of the question's run with a choice, for the first of the question's ranks. Throws
// Fault::usage if the run cannot be.
TrainOptions options_with(const MeshQuestion& question, const MeshChoice& choice);

// Seconds that a step takes at least: products and attention at their rates, what ranks that share
// a layer exchange, the bubble of equal stages, and gathering weights if that is longer. Exposed
// for its test.
double least_seconds(const MeshQuestion& question, const TrainOptions& options,
                     const CostModel& machine);

}  // namespace capstan
