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
#include "model/config.h"
#include "model/lora.h"
#include "recipe/recipe.h"

// Finds and reads the model, the tokenizer and the data that a recipe names.
namespace capstan {

// Whether a pretraining recipe gives the sizes of its model instead of naming one.
bool by_sizes(const Recipe& recipe);
// The model with the recipe's sizes. Throws Fault::usage for invalid sizes.
ModelConfig model_by_sizes(const Recipe& recipe, const Tokenizer& tokenizer);

// The model of a recipe. `folder` holds its weights, if any. With `known`, a model that is not on
// disk is looked up by name among the known models (to plan, not to run).
struct NamedModel {
  ModelConfig config;
  std::filesystem::path folder;  // empty: random weights, or not on disk
  std::string name;              // for display
  // The folder's files; checkpoints of all weights carry over what they can. Empty without a
  // folder.
  std::string config_text = {};
  std::optional<ExtraFile> generation_config = {};
};
NamedModel model_of(const Recipe& recipe, Task task, const Tokenizer* tokenizer, bool known);

// Everything on disk that a run needs.
struct RunInputs {
  NamedModel model;
  std::filesystem::path tokenizer_dir;  // empty: one token per byte
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<ExtraFile> tokenizer_files;    // contents of that folder when it was read
  std::optional<ChatTemplate> own_template;  // the folder's
  LoadedData data;
  int64_t max_seq_length = 0;
  bool is_text = false;          // plain text: no prompts to generate samples from
  int64_t sample_positions = 0;  // cache positions for texts that the caller will generate
};
// Reads and tokenizes, and logs what it finds. Throws Fault::file and Fault::usage.
RunInputs find_inputs(const Recipe& recipe, Task task);
// The same if the model and its tokenizer are not on disk but the data are, to plan: lengths are
// what RoughTokenizer counts.
RunInputs rough_inputs(const Recipe& recipe, const NamedModel& model);

// The data that a recipe names, without opening it. Throws Fault::usage if it names none and
// Fault::file if a named set is not on disk.
DataOptions data_options(const Recipe& recipe, int64_t max_seq_length);

// The adapters of a recipe. Throws Fault::usage for options that no model can have.
LoraOptions lora_options(const Recipe& recipe);

// Checks that the model, tokenizer and data of the recipe exist. Reads at most a config.json.
// Returns all errors, Fault::usage and Fault::file.
struct InputCheck {
  bool plan = false;  // named models and named datasets need no files
  bool data = true;   // false if the recipe's data keys are already known to be wrong
};
std::vector<Error> input_errors(const Recipe& recipe, Task task, const InputCheck& check);

// Maximum tokens of a sample: from the recipe, limited by the model.
int64_t max_seq_length_of(const Recipe& recipe, const ModelConfig& model);
// Warns if the recipe's max_seq_length exceeds the model's positions.
void warn_of_positions(const Recipe& recipe, const ModelConfig& model);

// Files stored in every checkpoint of the run: tokenizer, recipe, prompt style. Reads nothing from
// disk: a folder may have changed or disappeared by the end of a run.
std::vector<ExtraFile> extra_files(const Recipe& recipe, Task task, const RunInputs& inputs);

}  // namespace capstan
