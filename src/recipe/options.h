#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "recipe/condition.h"
#include "recipe/recipe.h"

namespace capstan {

// A pointer to the member of Recipe that a key sets.
using RecipeField = std::variant<
    int64_t Recipe::*, double Recipe::*, bool Recipe::*, Betas Recipe::*, std::string Recipe::*,
    std::optional<int64_t> Recipe::*, std::optional<double> Recipe::*,
    std::optional<bool> Recipe::*, std::optional<std::string> Recipe::*,
    std::optional<Precision> Recipe::*, std::optional<MatmulPrecision> Recipe::*,
    std::optional<Quantize> Recipe::*, Activations Recipe::*, Accelerator Recipe::*,
    Devices Recipe::*, Overlap Recipe::*, MicroBatch Recipe::*, Strategy Recipe::*,
    PipelineChoice Recipe::*, Resume Recipe::*, Loggers Recipe::*, DataClass Recipe::*,
    std::optional<SplitNames> Recipe::*, LrDecay Recipe::*, OnNan Recipe::*,
    ExampleChoice Recipe::*, OptimizerClass Recipe::*, Decay Recipe::*, Rounding Recipe::*>;

// What numbers are good; those with a fraction must be so as float too, which the kernels take.
enum class Check : uint8_t { any, positive, not_negative, fraction, power_of_two };

// A word that LitGPT takes for a key and Capstan does not.
struct RefusedWord {
  std::string_view word;
  std::string_view why;  // "… needs float16", without the word
};

struct Option {
  const char* key;  // "train.micro_batch_size"
  RecipeField field;
  Check check;
  uint8_t tasks;  // which commands use it: bits of Task
  const char* help;
  std::span<const Condition> needs = {};
  // Why a key that LitGPT has changes nothing here; null for all that do something.
  const char* ignored = nullptr;
  std::vector<RefusedWord> refused = {};
  // Says where a run computes and not what: left out of its record, which any ranks may continue.
  bool mesh = false;

  bool used_by(Task task) const { return (tasks & static_cast<uint8_t>(task)) != 0; }
};

// The one table: the command line, YAML files, --help, the checks and the run record all walk it.
std::span<const Option> options();

// The option of that key; throws Fault::usage with the nearest key there is. Takes LitGPT's long
// forms too: "optimizer.init_args.lr", "data.class_path", "model_config.n_layer".
const Option& find_option(std::string_view key);

}  // namespace capstan
