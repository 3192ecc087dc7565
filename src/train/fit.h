#pragma once

#include <string>
#include <vector>

#include "train/trainer.h"

namespace capstan {

// Memory that the GPU, or this machine, or the control group that this process runs in (a
// container, a batch job), could give to a run now, in bytes.
int64_t available_memory(Device device = Device::cpu);

// Whether a run fits into `available` bytes, and what would make it fit.
struct Fit {
  MemoryPlan plan;
  // What was planned. A copy of the state to save from beside the training is a convenience: where
  // it does not fit and the rest does, options.staging is off, and dropped_staging is what it took.
  TrainOptions options;
  int64_t dropped_staging = 0;
  int64_t available = 0;
  // Where it does not fit: changes to the recipe that are enough by themselves ("precision:
  // bf16-true"), the mildest first; or, where none is, one that takes several.
  std::vector<std::string> changes;

  bool fits() const { return plan.total_bytes <= available; }
  // "fits: needs 61.97 GiB of 80.00 GiB", or "does not fit: needs …, … free. Fits with: …".
  std::string verdict() const;
};

// Smaller micro-batches that it names divide `micro_batch`, and so the global batch.
Fit fit_of(const TrainOptions& options, int64_t micro_batch, int64_t available);
// Throws Fault::does_not_fit with the verdict, unless it fits.
void require_fit(const Fit& fit);

// The largest micro-batch of samples as long as the longest, and the longest samples with this
// micro-batch, that fit; 0 where even 1 does not. Batches are searched up to 65536, lengths up to
// the model's positions.
int64_t largest_micro_batch(const TrainOptions& options, int64_t available);
int64_t largest_sequence(const TrainOptions& options, int64_t available);

}  // namespace capstan
