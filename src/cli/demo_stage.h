#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/tasks.h"
#include "run/run.h"

// The two stages of the demo: a model learns several tasks, then adapters learn a new one.
namespace capstan::cli {

inline constexpr int64_t kDemoPositions = 64;  // maximum length of a prompt with its answer

// Training examples, and held-out examples to ask the model.
struct DemoTasks {
  explicit DemoTasks(std::vector<Example> examples);

  std::vector<Example> train, asked;
  size_t held_out;  // number of held-out examples; `asked` has the first of them
};

RunInputs demo_inputs(NamedModel model, const DemoTasks& tasks);

// Trains from random or loaded weights and saves the model. Asks the model before and after
// training and shows some answers. Returns the signal that interrupted it, or 0; throws Stopped
// before training.
int train_and_ask(TrainingRun& run, std::span<const Example> asked, const StopToken& stop);

// The command that asks the model in `folder` the first task.
std::string command_to_ask(const std::filesystem::path& folder, std::span<const Example> asked);

// The second stage: freezes the model that the run of `first` saved (`full` is its summary) and
// trains adapters, less than a fiftieth of its size, on a new kind of task. Saves them in a folder
// next to the first. Returns what train_and_ask does.
int adapt_to_new_task(const Recipe& first, const RunSummary& full, const StopToken& stop);

}  // namespace capstan::cli
