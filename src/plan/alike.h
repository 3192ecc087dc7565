#pragma once

#include <vector>

#include "train/train_options.h"

// Ranks of a mesh do the same, with few exceptions: what holds for one of those that are alike
// holds for all of them, so that thousands are planned by a few.
namespace capstan {

// The stages of a pipeline, in groups of those with as many blocks of each kind: they compute the
// same. The first and the last stage are alone.
std::vector<std::vector<int>> stages_alike(const TrainOptions& options);

// Ranks among which are one that needs the most memory and one that needs the least. Of stages that
// are alike, those between the first and the last keep fewer micro-batches than the one and more
// than the other; of ranks that share a layer or a sequence, the first have most and the last
// least. Ranks that share a state have slices of one size, which cut its tensors in different
// places, so they may differ by some padding: of up to 64 ranks all of these count, of more a
// selection.
std::vector<int> ranks_that_differ(const TrainOptions& options);
// The same ranks without those that never need most.
std::vector<int> ranks_that_need_most(const TrainOptions& options);

}  // namespace capstan
