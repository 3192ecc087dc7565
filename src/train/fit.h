#pragma once

#include "train/trainer.h"

namespace capstan {

// Memory that this machine, or the control group that this process runs in (a container, a batch
// job), could give to a run now, in bytes.
int64_t available_memory();

// Throws Fault::does_not_fit, with what would fit, unless the plan's total is at most `available`.
// Smaller micro-batches that it names divide `micro_batch`, and so the global batch.
void require_fit(const TrainOptions& options, int64_t micro_batch, const MemoryPlan& plan,
                 int64_t available);

}  // namespace capstan
