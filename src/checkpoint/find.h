#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/training_state.h"

// The checkpoints of a run: the folders step-DIGITS and final of its out_dir that have a
// training_state.
namespace capstan {

struct FoundCheckpoint {
  std::filesystem::path dir;
  TrainingState state;
};

struct CheckpointSearch {
  std::optional<FoundCheckpoint> newest;  // absent: no complete checkpoint
  std::vector<std::string> skipped;       // of newer ones: the damaged file, and what is wrong
};

// The checkpoint with the most steps, by its state, that verify_checkpoint accepts; of two with as
// many the one with moments, and where that is damaged none of the two, unless they have `enough`
// steps: a model alone is nothing to go on from. Newer ones that it does not accept, or whose state
// cannot be read, are told in `skipped`. A missing out_dir has no checkpoints. Reads the whole of
// the newest; changes nothing.
CheckpointSearch newest_checkpoint(const std::filesystem::path& out_dir,
                                   int64_t enough = INT64_MAX);

// Deletes the oldest step-* checkpoints beyond the `count` newest complete ones (by state and
// sizes), but never the newest with moments that verify_checkpoint accepts, nor `own`, which was
// just written; damaged ones stay, for the user to look at. `final` neither counts nor goes.
// Removes what dead runs left. count >= 1.
void keep_last(const std::filesystem::path& out_dir, int count,
               const std::filesystem::path& own = {});

}  // namespace capstan
