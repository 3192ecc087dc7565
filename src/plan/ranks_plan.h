#pragma once

#include <optional>
#include <string>
#include <vector>

#include "machine/memory.h"
#include "train/trainer.h"

// The memory of all ranks of a run. Ranks that are alike are planned once (alike.h).
namespace capstan {

// The bytes that each rank needs on its device.
struct RankBytes {
  int64_t least = 0, most = 0;
};

// What one rank needs in each memory space.
struct RankNeed {
  int rank = 0;
  int64_t device = 0, host = 0;
};
RankBytes bytes_of(const std::vector<RankNeed>& needs);

// The plans of all ranks that differ, whichever rank the options name. The stages are cut for these
// options, unless they have cuts.
struct RanksPlan {
  std::vector<RankNeed> needs;
  // The rank that decides whether all fit: the one that needs most of its device or, if only host
  // memory is short, most of that. All ranks fit exactly if its plan does.
  int neediest = 0;
  RunPlan plan;  // of that rank
};
RanksPlan plan_ranks(const TrainOptions& options, const Room& available);

// The bytes that the rank that needs most needs on its device, if every rank fits; none at the
// first that does not.
std::optional<int64_t> most_if_all_fit(const TrainOptions& options, const Room& available);

// Whether the first rank of each stage fits: a quick test before most_if_all_fit. Other ranks of a
// stage need little more: their slices of a state of the same size cut its tensors in other places,
// and so have other padding.
bool stages_fit(const TrainOptions& options, const Room& available);

// Ranks that do the same: "stages 1 to 6", how many they are, and what the fullest of them needs.
struct RankClass {
  std::string name;
  int ranks = 1;
  int64_t bytes = 0;
};
// The stages of a pipeline, in groups that are alike; one class if there are no stages. `needs` are
// those of plan_ranks with these options.
std::vector<RankClass> rank_classes(const TrainOptions& options,
                                    const std::vector<RankNeed>& needs);

}  // namespace capstan
