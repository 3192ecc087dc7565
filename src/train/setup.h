#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "base/error.h"
#include "checkpoint/training_checkpoint.h"
#include "data/data_source.h"
#include "data/tokenizer/tokenizer.h"
#include "infer/model_files.h"
#include "recipe/recipe.h"
#include "train/length.h"
#include "train/trainer.h"

// From a recipe to what a run is made of: the model, the tokenizer and the data that it names.
namespace capstan {

// Whether a recipe for pretraining names no model, but has its sizes.
bool by_sizes(const Recipe& recipe);
// The model that the recipe's sizes describe. Throws Fault::usage for sizes that make none.
ModelConfig model_by_sizes(const Recipe& recipe, const Tokenizer& tokenizer);

// The model that a recipe means. `folder` is that of its weights, where it has one. Without a
// folder on the disk, a known model of the name is taken if `known` allows (to plan, not to run).
struct NamedModel {
  ModelConfig config;
  std::filesystem::path folder;  // empty: random weights, or not on the disk
  std::string name;              // for people
  // The folder's files, which checkpoints of all weights keep what they can of; none without.
  std::string config_text = {};
  std::optional<ExtraFile> generation_config = {};
};
NamedModel model_of(const Recipe& recipe, Task task, const Tokenizer* tokenizer, bool known);

// Everything on the disk that a run needs.
struct RunInputs {
  NamedModel model;
  std::filesystem::path tokenizer_dir;  // empty: one token per byte
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<ExtraFile> tokenizer_files;    // of that folder, as they were when it was read
  std::optional<ChatTemplate> own_template;  // the folder's
  LoadedData data;
  int64_t max_seq_length = 0;
  bool is_text = false;          // no prompts to show samples for
  int64_t sample_positions = 0;  // room for texts that the caller will generate
};
// Reads and tokenizes, with lines of what it finds. Throws Fault::file and Fault::usage.
RunInputs find_inputs(const Recipe& recipe, Task task);

// The data that a recipe names, without opening them. Throws Fault::usage where it names none and
// Fault::file where a named set is not on the disk.
DataOptions data_options(const Recipe& recipe, int64_t max_seq_length);

// Whether what the recipe names is there: model, tokenizer and data, none of which is read further
// than a config.json. All errors together, Fault::usage and Fault::file.
struct InputCheck {
  bool plan = false;  // models by name need no files, nor do sets of data by name
  bool data = true;   // false where the recipe's words for its data are wrong
};
std::vector<Error> input_errors(const Recipe& recipe, Task task, const InputCheck& check);

// Tokens of a sample at most: what the recipe says, at most what the model can.
int64_t max_seq_length_of(const Recipe& recipe, const ModelConfig& model);
// Says so where the model can less than the recipe says.
void warn_of_positions(const Recipe& recipe, const ModelConfig& model);

// What the recipe makes of a model: the options of its trainer, without limits and schedule.
TrainOptions train_options(const Recipe& recipe, Task task, const ModelConfig& model);
// With the limits of the largest batch that these data make.
TrainOptions train_options(const Recipe& recipe, Task task, const RunInputs& inputs);
// With the largest batch that max_seq_length allows: for a plan without data.
TrainOptions worst_case_options(const Recipe& recipe, Task task, const ModelConfig& model);

BatchOptions batch_options(const Recipe& recipe, const RunInputs& inputs);

// Files that go along with every checkpoint of the run: tokenizer, recipe, prompt style. Reads
// none: a folder may be gone, or changed, when a run ends.
std::vector<ExtraFile> extra_files(const Recipe& recipe, Task task, const RunInputs& inputs);

}  // namespace capstan
