#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace capstan {

// What the user asks of a training run. Each field is one row of options(); names of keys follow
// LitGPT.
struct Recipe {
  // model
  std::string model_config;  // path of a config.json; else the sizes below
  std::string initial_checkpoint_dir;
  int64_t hidden_size = 128;
  int64_t intermediate_size = 352;
  int64_t num_hidden_layers = 4;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 4;
  bool tie_embeddings = false;
  // data
  std::string train_data_path;
  double val_split_fraction = 0.05;
  bool packed = true;
  // run
  std::string out_dir = "out/pretrain";
  std::string precision = "32-true";
  std::string activations = "none";
  int64_t seed = 42;
  // train
  int64_t global_batch_size = 32;
  int64_t micro_batch_size = 32;
  int64_t max_steps = 200;
  int64_t max_seq_length = 256;
  int64_t lr_warmup_steps = 20;
  std::string schedule = "cosine";
  double min_lr = 4e-5;
  double max_norm = 1.0;
  int64_t log_interval = 1;
  // eval
  int64_t eval_interval = 100;
  int64_t eval_max_iters = 100;
  // optimizer
  std::string optimizer = "AdamW";
  double lr = 1e-3;
  double weight_decay = 0.1;
  std::string decay = "all";
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double momentum = 0, dampening = 0;
  bool nesterov = false;
};

using RecipeField =
    std::variant<int64_t Recipe::*, double Recipe::*, bool Recipe::*, std::string Recipe::*>;

// What values are good; numbers with a fraction must be so as float too, which the kernels take.
// `oneof` has its list in Option::choices.
enum class Check : uint8_t { any, positive, not_negative, fraction, oneof };

struct Option {
  const char* key;  // "train.micro_batch_size"
  RecipeField field;
  Check check;
  const char* help;
  std::vector<std::string_view> choices = {};
};

// The one table: the command line, YAML files, --help, the checks and the run record all walk it.
std::span<const Option> options();

// Sets one value from text. Throws Fault::usage: "key: expected …, found …".
void set_option(Recipe& recipe, const Option& option, std::string_view text);
std::string value_of(const Recipe& recipe, const Option& option);

// The option of that key; throws Fault::usage with the nearest key there is.
const Option& find_option(std::string_view key);
// The word that `word` was most likely meant to be. There must be one at least.
std::string_view nearest(std::string_view word, std::span<const std::string_view> words);

// Sets everything that a YAML file says: "train.max_steps: 5" or max_steps under train. A key
// without a value leaves the default. All errors are reported together (Fault::usage), one per
// line, each with file:line:column; a file that cannot be read is Fault::file. Returns the keys
// that have a value there.
std::set<std::string> read_recipe(Recipe& recipe, const std::string& path);

// The recipe as YAML that read_recipe takes back.
std::string recipe_yaml(const Recipe& recipe);

}  // namespace capstan
