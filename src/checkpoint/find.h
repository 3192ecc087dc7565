#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/training_state.h"

// The checkpoints of a run: the folders step-DIGITS and final of its out_dir that have a
// training_state.
namespace capstan {

struct FoundCheckpoint {
  std::filesystem::path dir;
  TrainingState state;
};

// "final", or "step-" and a number: the folders that a run writes.
bool is_checkpoint_name(std::string_view name);

struct CheckpointSearch {
  std::optional<FoundCheckpoint> newest;  // absent: no complete checkpoint
  std::vector<std::string> skipped;       // for newer ones: the damaged file and the problem
};

// The checkpoint with the most steps (by its state) that verify_checkpoint accepts. Between two
// with equal steps it takes the one with moments; if that is damaged, neither, unless they have
// `enough` steps: a run cannot resume from a model alone. Lists newer ones that are damaged or
// unreadable in `skipped`. A missing out_dir has no checkpoints. Reads all of the newest
// checkpoint; changes nothing.
CheckpointSearch newest_checkpoint(const std::filesystem::path& out_dir,
                                   int64_t enough = INT64_MAX);

// Deletes the oldest step-* checkpoints beyond the `count` newest complete ones (by state and
// sizes), but never the newest with moments that verify_checkpoint accepts, nor `own`, which was
// just written. Keeps damaged ones for inspection. `final` neither counts nor is deleted. Removes
// leftovers of dead runs. count >= 1.
void keep_last(const std::filesystem::path& out_dir, int count,
               const std::filesystem::path& own = {});

}  // namespace capstan
