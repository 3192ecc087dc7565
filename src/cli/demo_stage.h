#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/tasks.h"
#include "run/run.h"

// The demonstration's two stages: a model learns several tasks, then adapters beside it another.
namespace capstan::cli {

inline constexpr int64_t kDemoPositions = 64;  // longest prompt and answer together

// Examples to train on, and those held out that the model is asked.
struct DemoTasks {
  explicit DemoTasks(std::vector<Example> examples);

  std::vector<Example> train, asked;
  size_t held_out;  // of which `asked` are the first
};

RunInputs demo_inputs(NamedModel model, const DemoTasks& tasks);

// From random or loaded weights to the final folder: asks before and after the training, and shows
// some answers. Returns the signal that interrupted it, or 0.
int train_and_ask(TrainingRun& run, std::span<const Example> asked);

// The command that asks the model in `folder` the first of the tasks.
std::string command_to_ask(const std::filesystem::path& folder, std::span<const Example> asked);

// The second stage: freezes the model that a run of `first` has saved, whose summary is `full`, and
// trains adapters of less than a fiftieth of its size on a kind of task that it does not know. The
// folder beside the first one's gets them. Returns as train_and_ask.
int adapt_to_new_task(const Recipe& first, const RunSummary& full);

}  // namespace capstan::cli
