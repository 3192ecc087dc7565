#include "cli/planned.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/units.h"
#include "data/tokenizer/rough_tokenizer.h"
#include "run/run.h"

namespace capstan::cli {
namespace {

namespace fs = std::filesystem;

bool names_data(const Recipe& recipe) {
  if (recipe.data == DataClass::text_files) return recipe.train_data_path.has_value();
  return recipe.data != DataClass::json || recipe.json_path.has_value();
}

bool given_by_path(const Recipe& recipe) {
  return recipe.data == DataClass::json || recipe.data == DataClass::text_files;
}

// Records that will come from standard input: the run reads them, not the plan.
bool comes_later(const Recipe& recipe) {
  return recipe.data == DataClass::json && recipe.json_path == "-";
}

bool tokenizer_exists(const Recipe& recipe, const NamedModel& model) {
  const auto named = try_checkpoint_dir(recipe.tokenizer_dir.value_or(""));
  if (!named && recipe.tokenizer_dir) return false;
  const fs::path folder = named.value_or(model.folder);
  std::error_code error;
  return folder.empty() || fs::exists(folder / "tokenizer.json", error) ||
         fs::exists(folder / "tokenizer.model", error);
}

// The plan of the run itself.
void take_inputs(Planned& p, RunInputs inputs, const Recipe& recipe, Task task) {
  p.inputs = std::move(inputs);
  p.options = run_options(recipe, task, *p.inputs);
  const Dataset& train = p.inputs->data.train;
  const RunLength length(recipe, train, p.inputs->max_seq_length);
  if (length.limited()) p.steps = length.steps();
  p.basis =
      fmt::format("for the {} of the data, the longest of {}{}", count(train.size(), "sample"),
                  p.rough ? "about " : "", count(train.longest(), "token"));
}

// Without data: as if every sample had as many tokens as it may.
std::optional<int64_t> steps_of_full_samples(const Recipe& recipe, int64_t tokens) {
  std::optional<int64_t> steps = recipe.max_steps;
  if (recipe.max_tokens) {
    const int64_t of_a_step = recipe.global_batch_size * tokens;
    const int64_t needed = (*recipe.max_tokens - 1) / of_a_step + 1;
    steps = std::min(steps.value_or(needed), needed);
  }
  return steps;
}

// The data without the model that will be trained on them; false if they are not there either.
bool take_rough_inputs(Planned& p, const Recipe& recipe, Task task, const NamedModel& model) {
  if (!names_data(recipe) || (task == Task::pretrain && by_sizes(recipe))) return false;
  p.rough = true;
  try {
    take_inputs(p, rough_inputs(recipe, model), recipe, task);
  } catch (const Error& e) {
    // Public datasets need not be here.
    if (e.fault() != Fault::file || given_by_path(recipe)) throw;
    p.rough = false;
    p.inputs.reset();
    return false;
  }
  p.basis += fmt::format(" (one for every {} bytes: the model's tokenizer is not on this disk)",
                         RoughTokenizer::kBytesPerToken);
  return true;
}

}  // namespace

Planned plan_for(const Recipe& recipe, Task task) {
  Planned p;
  const NamedModel model = model_of(recipe, task, nullptr, true);
  p.model = model.name;
  std::string missing = "the checkpoint is not on this disk";
  if (comes_later(recipe)) {
    missing = "the data come from standard input, which the run reads";
  } else if (!model.folder.empty() || task == Task::pretrain) {
    try {
      take_inputs(p, find_inputs(recipe, task), recipe, task);
      return p;
    } catch (const Error& e) {
      if (e.fault() != Fault::file && e.fault() != Fault::usage) throw;
      const bool tokenizer = tokenizer_exists(recipe, model);
      if (names_data(recipe) && tokenizer) throw;
      // A model given by its sizes takes its vocabulary from the tokenizer, unless vocab_size is
      // set.
      if (!tokenizer && task == Task::pretrain && by_sizes(recipe) && !recipe.vocab_size) throw;
      if (!tokenizer && take_rough_inputs(p, recipe, task, model)) return p;
      p.inputs.reset();
      missing = e.what();
      missing.resize(std::min(missing.find('\n'), missing.size()));
    }
  } else if (take_rough_inputs(p, recipe, task, model)) {
    return p;
  }
  p.options = worst_case_options(recipe, task, model.config);
  p.steps = steps_of_full_samples(recipe, p.options.limits.longest);
  p.basis = fmt::format(
      "for the largest batch that the recipe allows: {} of {}{} ({})",
      count(p.options.limits.documents, "sample"), count(p.options.limits.longest, "token"),
      recipe.max_seq_length
          ? ""
          : ", the model's maximum; set --train.max_seq_length to plan for shorter ones",
      missing);
  return p;
}

}  // namespace capstan::cli
