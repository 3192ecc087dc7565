#pragma once

#include <string>

#include "data/batch/batch.h"
#include "recipe/recipe.h"
#include "train/inputs.h"
#include "train/length.h"
#include "train/trainer.h"

// The options of a run, from its recipe and what the recipe names.
namespace capstan {

// The trainer's options for this recipe and model, without limits and schedule.
TrainOptions train_options(const Recipe& recipe, Task task, const ModelConfig& model);
// With the limits of the largest batch of this data, and the schedule.
TrainOptions train_options(const Recipe& recipe, Task task, const RunInputs& inputs);
// With the largest batch that max_seq_length allows: for a plan without data.
TrainOptions worst_case_options(const Recipe& recipe, Task task, const ModelConfig& model);

// Advice about the precision, or nothing: f16 is for GPUs that have no bf16.
std::string precision_note(const TrainOptions& options);

// How the ranks of a recipe share its work. With Overlap::automatic they do not overlap, yet.
MeshShape mesh_of(const Recipe& recipe);

// Makes them the options of one of several ranks on so many machines, with the recipe's strategy.
// Throws Fault::usage if the strategy needs as many ranks on each machine, and they are not.
void set_ranks(TrainOptions& options, const Recipe& recipe, const Ranks& ranks,
               const Network& network, int machines = 1);

// On how many machines the ranks are that have the same part of the model, if they are as many on
// each; else 0.
int machines_of_part(const TrainOptions& options);

BatchOptions batch_options(const Recipe& recipe, const RunInputs& inputs);

}  // namespace capstan
