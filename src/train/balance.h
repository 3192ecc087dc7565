#pragma once

#include <vector>

#include "train/train_options.h"

namespace capstan {

// Cuts a model into pieces of consecutive blocks that take about the same time, with the embedding
// in the first and the head in the last one; the block with which each begins, and where the last
// ends. Measured on `sim`, by one model of the device that is the same everywhere: all ranks cut
// alike. Throws Fault::usage for more pieces than the model has blocks.
std::vector<int> balanced_pieces(const TrainOptions& options, int pieces);

// The cuts of a trainer with these options: theirs, or balanced ones if they have none.
std::vector<int> cuts_of(const TrainOptions& options);

}  // namespace capstan
