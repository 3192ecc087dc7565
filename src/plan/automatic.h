#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "plan/run_on.h"

// What a recipe leaves to the program: train.micro_batch_size auto, and strategy auto of several
// ranks.
namespace capstan {

// Whether ranks of this recipe share no state, or all of it, as the program finds best.
bool strategy_is_open(const Recipe& recipe, int ranks);

// The machines with the times that choices are made by, or without any: those that were measured,
// of the ranks and their links. If the strategy of several GPUs is open, their data sheet serves
// for what was not measured: `gpu` is the name that their driver reports, or empty.
Machines with_known_times(Machines machines, const Recipe& recipe, const TrainOptions& options,
                          std::string_view gpu = {});

struct AutomaticChoice {
  int64_t micro_batch_size = 1;
  Strategy strategy;
};

// Chooses the micro-batch, a power of two that divides the global batch: if the machines' times are
// known, the one with the shortest step that fits, else the largest that needs no more
// recomputation than one sample does. The strategy is the one that run_on chooses if times are
// known, else zero3. Returns nothing if the recipe leaves nothing open, or if not even one sample
// fits. `options_with` returns the options of one rank for a recipe.
std::optional<AutomaticChoice> best_choice(
    const Recipe& recipe, const RunInputs* inputs, const Machines& machines,
    const std::function<TrainOptions(const Recipe&)>& options_with);

}  // namespace capstan
