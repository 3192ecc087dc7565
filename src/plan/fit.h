#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine/memory.h"
#include "train/trainer.h"

namespace capstan {

// Whether a run fits into the room that there is, and what would make it fit.
struct Fit {
  RunPlan plan;
  // What was planned, with `recompute` where it was to be chosen: as little as fits. A copy of the
  // state to save from beside the training is a convenience: where it does not fit and the rest
  // does, options.staging is off, and dropped_staging is what it took (of host memory, for a GPU).
  TrainOptions options;
  int64_t dropped_staging = 0;
  bool recompute_was_chosen = false;
  Room available;
  // Where it does not fit: changes to the recipe that are enough by themselves ("precision:
  // bf16-true"), the mildest first; or, where none is, one that takes several.
  std::vector<std::string> changes;

  bool fits() const { return capstan::fits(plan, available); }
  // "fits: needs 62.0 GiB of 80.0 GiB", or "does not fit: needs …, … free. Fits with: …". For a
  // GPU it names the spaces: "needs 62.0 GiB of 80.0 GiB on the GPU and 12.0 GiB of 126 GiB of
  // host memory".
  std::string verdict() const;
};

// Smaller micro-batches that it names divide `micro_batch`, and so the global batch.
Fit fit_of(const TrainOptions& options, int64_t micro_batch, const Room& available);
// Throws Fault::does_not_fit with the verdict, unless it fits.
void require_fit(const Fit& fit);

// The largest micro-batch of samples as long as the longest, and the longest samples with this
// micro-batch, that fit; 0 where even 1 does not. Batches are searched up to 65536, lengths up to
// the model's positions. `generated`: tokens that are generated after a sample as long as the
// longest; without it samples are generated after what they are now, whatever the length.
int64_t largest_micro_batch(const TrainOptions& options, const Room& available);
int64_t largest_sequence(const TrainOptions& options, const Room& available,
                         std::optional<int64_t> generated = {});

}  // namespace capstan
