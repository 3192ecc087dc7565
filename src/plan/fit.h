#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine/memory.h"
#include "plan/ranks_plan.h"
#include "train/trainer.h"

namespace capstan {

// A change of the recipe: "precision: bf16-true".
struct Change {
  std::string what;
  TrainOptions options;                     // with it
  std::optional<int64_t> micro_batch = {};  // if that is changed
  int64_t bytes = 0;                        // that the neediest rank then needs on its device
};

// Whether every rank of a run fits into the available memory, and which changes would make it fit.
struct Fit {
  RunPlan plan;                 // of the rank that needs most (ranks_plan.h)
  std::vector<RankNeed> needs;  // of the ranks that differ
  // The planned options, of that rank, with the least recomputation that fits if it was to be
  // chosen. The copy of the state for saving during training is optional: if only that copy does
  // not fit, options.staging is off, and dropped_staging is its size (in host memory, for a GPU).
  TrainOptions options;
  int64_t dropped_staging = 0;
  bool recompute_was_chosen = false;
  Room available;
  // If it does not fit: changes, each sufficient by itself, the mildest first; if none is, entries
  // that combine several: one with more GPUs, and one on those that it has.
  std::vector<Change> changes;

  bool fits() const { return capstan::fits(plan, available); }
  std::vector<std::string> names_of_changes() const;
  // "fits: needs 62.0 GiB of 80.0 GiB", or "does not fit: needs …, … free. Fits with: …". For a GPU
  // it names both memories: "needs 62.0 GiB of 80.0 GiB on the GPU and 12.0 GiB of 126 GiB of host
  // memory".
  std::string verdict() const;
};

// Keys of a recipe: "devices: 4", "devices: 8, num_nodes: 2".
std::string named_gpus(int devices, int machines);

// The verdict on all ranks with these options, whichever rank they name, without changes. If
// recomputation is to be chosen, it is the least that fits on the device, all of it if none does;
// of a pipeline it may be somewhat more than the least, since it moves the stages' cuts.
Fit judge(const TrainOptions& options, const Room& available);

// The same with changes, if the run does not fit: with each of them every rank fits. Smaller
// micro-batches that it suggests divide `micro_batch`, and so the global batch.
Fit fit_of(const TrainOptions& options, int64_t micro_batch, const Room& available);
// Throws Fault::does_not_fit with the verdict if it does not fit.
void require_fit(const Fit& fit);

// The largest micro-batch with which every rank fits, with samples of the longest length, and the
// longest samples that fit with this micro-batch; 0 if even 1 does not. Quickest if the options
// name the rank that needs most. Searches batches up to
// 65536, and lengths up to the model's positions. `generated`: number of tokens generated after a
// sample of that length; without it, options.sample_positions stays as it is.
int64_t largest_micro_batch(const TrainOptions& options, const Room& available);
int64_t largest_sequence(const TrainOptions& options, const Room& available,
                         std::optional<int64_t> generated = {});

}  // namespace capstan
