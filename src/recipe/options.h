#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "recipe/recipe.h"

namespace capstan {

using RecipeField =
    std::variant<int64_t Recipe::*, double Recipe::*, bool Recipe::*, std::string Recipe::*,
                 Betas Recipe::*, std::optional<int64_t> Recipe::*, std::optional<double> Recipe::*,
                 std::optional<bool> Recipe::*>;

// What values are good; numbers with a fraction must be so as float too, which the kernels take.
// `oneof` has its list in Option::choices; `words` are choices or a whole number, 0 or more;
// `counted` are choices, of which "block[:N]" may have a whole number from 1 on, as "block:8".
enum class Check : uint8_t { any, positive, not_negative, fraction, oneof, words, counted };

struct Option {
  const char* key;  // "train.micro_batch_size"
  RecipeField field;
  Check check;
  uint8_t tasks;  // which commands use it: bits of Task
  const char* help;
  std::vector<std::string_view> choices = {};
  // Why a key that LitGPT has changes nothing here; null for all that do something.
  const char* ignored = nullptr;

  bool used_by(Task task) const { return (tasks & static_cast<uint8_t>(task)) != 0; }
};

// The one table: the command line, YAML files, --help, the checks and the run record all walk it.
std::span<const Option> options();

// The option of that key; throws Fault::usage with the nearest key there is. Takes LitGPT's long
// forms too: "optimizer.init_args.lr", "data.class_path", "model_config.n_layer".
const Option& find_option(std::string_view key);

}  // namespace capstan
