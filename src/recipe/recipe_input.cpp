#include "recipe/recipe_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "recipe/check.h"
#include "recipe/keys.h"
#include "recipe/values.h"

namespace capstan {
namespace {

constexpr std::array<std::string_view, 2> kAdamw = {"optimizer.betas", "optimizer.eps"};
constexpr std::array<std::string_view, 3> kSgd = {"optimizer.momentum", "optimizer.dampening",
                                                  "optimizer.nesterov"};

bool is_size(std::string_view key) {
  return key.starts_with("model.");
}

}  // namespace

RecipeInput::RecipeInput(Task task, Recipe defaults)
    : task_(task), defaults_(std::move(defaults)), recipe_(defaults_) {}

void RecipeInput::set(const std::string& key, const std::string& value) {
  set_value(key, {.source = INT32_MAX, .place = "", .value = value});
}

void RecipeInput::set_value(const std::string& key, const Given& given) {
  if (changes_nothing(key, given.value)) return;
  if (const auto field = model_field(key)) {
    inline_model_ = std::max(inline_model_, given.source);
    if (short_key(key) == key) return set_model_field(std::string(*field), given);
  }
  replace(short_key(key), given);
  try {
    const Option& option = find_option(key);
    const auto before = given_.find(option.key);
    require(before == given_.end() || before->second.source < given.source || given.place.empty(),
            Fault::usage, "{}: given twice", key);
    given_[option.key] = given;
    set_option(recipe_, option, given.value);
  } catch (const Error& e) {
    add_wrong(key, given, e.what());
  }
}

void RecipeInput::add_wrong(const std::string& key, const Given& given, const std::string& text) {
  const std::string name = short_key(key);
  const auto all = options();
  errors_.push_back({.text = text,
                     .place = given.place,
                     .key = name,
                     .source = given.source,
                     .unknown = std::none_of(all.begin(), all.end(),
                                             [&](const Option& o) { return name == o.key; })});
}

// Errors in what this replaces go: the value of the key before, and, with another class of data or
// optimizer, arguments of the class before that no class here has.
void RecipeInput::replace(std::string_view key, const Given& given) {
  const auto name_of_class = [](const std::string& text) {
    return text.substr(text.rfind('.') + 1);
  };
  const auto before = given_.find(key);
  const bool other_class = (key == "data" || key == "optimizer") && before != given_.end() &&
                           name_of_class(before->second.value) != name_of_class(given.value);
  std::erase_if(errors_, [&](const WrongValue& wrong) {
    if (wrong.source >= given.source) return false;
    if (wrong.key == key) return true;
    const bool argument =
        other_class && wrong.unknown && wrong.key.starts_with(key) && wrong.key[key.size()] == '.';
    if (argument)
      notes_.push_back(fmt::format("{} ({}): dropped, {} has none", wrong.key, wrong.place,
                                   name_of_class(given.value)));
    return argument;
  });
}

bool RecipeInput::given(std::string_view key) const {
  return given_.contains(key);
}

bool RecipeInput::sets(std::string_view key) const {
  const Option& option = find_option(key);
  return given(key) && value_of(recipe_, option) != value_of(defaults_, option);
}

std::string RecipeInput::origin_of(const Option& option) const {
  const auto it = given_.find(std::string_view(option.key));
  if (it == given_.end()) return "default";
  return it->second.place.empty() ? "command line" : it->second.place;
}

void RecipeInput::complain(std::string_view key, const std::string& text) {
  const auto it = given_.find(key);
  const bool placed = it != given_.end() && !it->second.place.empty();
  add_error(fmt::format("{}{}: {}", placed ? it->second.place + ": " : "", key, text));
}

void RecipeInput::note_idle(std::string_view key, const std::string& why) {
  if (!given(key)) return;
  notes_.push_back(fmt::format("{} ({}): no effect, {}", key, origin_of(find_option(key)), why));
}

// A class that the command line names replaces the recipe's: what the two have in common stays.
void RecipeInput::settle_optimizer() {
  const bool sgd = recipe_.optimizer.kind == OptimizerKind::sgd;
  const std::string_view other = sgd ? "SGD" : "AdamW";
  const auto named = given_.find(std::string_view("optimizer"));
  const auto drop = [&](std::string_view key) {
    const auto it = given_.find(key);
    if (it == given_.end()) return;
    if (named != given_.end() && it->second.source < named->second.source) {
      notes_.push_back(fmt::format("{} ({}): dropped, {} has none", key, it->second.place, other));
      const Option& option = find_option(key);
      set_option(recipe_, option, value_of(Recipe(), option));
      given_.erase(it);
    }
  };
  if (sgd) std::for_each(kAdamw.begin(), kAdamw.end(), drop);
  if (!sgd) std::for_each(kSgd.begin(), kSgd.end(), drop);
  if (sgd && !given("optimizer.weight_decay")) recipe_.weight_decay = 0;
}

// The same for data: a name of the command line does not read the recipe's file.
void RecipeInput::settle_data() {
  const auto named = given_.find(std::string_view("data"));
  if (named == given_.end()) return;
  const DataClass data = recipe_.data;
  const bool json = data == DataClass::json, text = data == DataClass::text_files;
  for (const auto& [key, has] : {std::pair<std::string_view, bool>{"data.json_path", json},
                                 {"data.train_data_path", text},
                                 {"data.val_data_path", text},
                                 {"data.download_dir", !json && !is_text(data)},
                                 {"data.data_path", is_text_set(data)},
                                 {"data.split_names", data == DataClass::litdata},
                                 {"data.use_starcoder", data == DataClass::tinyllama},
                                 {"data.columns.instruction", json},
                                 {"data.columns.input", json},
                                 {"data.columns.output", json},
                                 {"data.columns.system", json},
                                 {"data.columns.messages", json},
                                 {"data.columns.text", json || is_text(data)}}) {
    const auto it = given_.find(key);
    if (has || it == given_.end() || it->second.source >= named->second.source) continue;
    notes_.push_back(
        fmt::format("{} ({}): dropped, {} has none", key, it->second.place, name_of(data)));
    const Option& option = find_option(key);
    set_option(recipe_, option, value_of(defaults_, option));
    given_.erase(it);
  }
}

// The least rate follows a rate that is given later, as on the command line beside a recipe.
void RecipeInput::settle_min_lr() {
  const auto least = given_.find(std::string_view("train.min_lr"));
  const auto rate = given_.find(std::string_view("optimizer.lr"));
  if (recipe_.min_lr <= recipe_.lr) return;
  if (least == given_.end()) {
    recipe_.min_lr = recipe_.lr;
  } else if (rate != given_.end() && least->second.source < rate->second.source) {
    recipe_.min_lr = recipe_.lr;
    notes_.push_back(fmt::format("train.min_lr ({}): lowered to optimizer.lr {}",
                                 least->second.place, recipe_.lr));
  }
}

// Why a key that was given has no effect in this recipe; empty where it has one.
std::string RecipeInput::without_effect(std::string_view key) const {
  const auto is_in = [&](const auto& list) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  const Recipe& r = recipe_;
  const bool sgd = r.optimizer.kind == OptimizerKind::sgd;
  if (sgd && is_in(kAdamw)) return "AdamW has it, and the optimizer is SGD";
  if (!sgd && is_in(kSgd))
    return fmt::format("SGD has it, and the optimizer is {}", name_of(r.optimizer));
  const bool extra = key == "optimizer.dampening" || (key == "optimizer.nesterov" && r.nesterov);
  if (extra && r.momentum == 0) return "needs an optimizer.momentum above 0";
  if (extra && r.nesterov && r.dampening > 0)
    return "optimizer.nesterov and optimizer.dampening exclude each other";
  if (is_size(key)) {
    if (r.initial_checkpoint_dir)
      return "initial_checkpoint_dir has a config.json of its own; give one of the two";
    if (r.model_config) return "model_config says it; give one of the two";
    if (r.model_name) return "model_name says it; give one of the two";
  }
  if (key == "model_config" && r.initial_checkpoint_dir)
    return "initial_checkpoint_dir has a config.json of its own; give one of the two";
  if (key == "model_config" && r.model_name) return "model_name says it; give one of the two";
  const bool of_text = key == "data.train_data_path" || key == "data.val_data_path";
  const bool of_records = key == "data.json_path" || key == "data.mask_prompt" ||
                          key == "data.prompt_style" || key == "data.download_dir";
  if (is_text(r.data) && of_records && (r.mask_prompt || r.json_path))
    return fmt::format("is for records, and the data are {}; give --data JSON", name_of(r.data));
  if (is_text(r.data) && key.starts_with("data.columns.") && key != "data.columns.text")
    return fmt::format(
        "is for records, and the data are {}, whose only column is data.columns.text",
        name_of(r.data));
  const auto is_for = [&](std::string_view whose) {
    return fmt::format("is for {}, and the data are {}", whose, name_of(r.data));
  };
  if (of_text && r.data != DataClass::text_files) return is_for("TextFiles");
  if (key == "data.data_path" && !is_text_set(r.data))
    return is_for("TinyStories, TinyLlama, MicroLlama, OpenWebText and LitData");
  if (key == "data.split_names" && r.data != DataClass::litdata) return is_for("LitData");
  if (key == "data.use_starcoder" && r.data != DataClass::tinyllama) return is_for("TinyLlama");
  return "";
}

void RecipeInput::check_uses() {
  for (const auto& [key, given] : given_) {
    const Option& option = find_option(key);
    // The record of a run has all keys; what is at its default does no harm.
    if (value_of(recipe_, option) == value_of(defaults_, option)) continue;
    const std::string why = option.used_by(task_)
                                ? without_effect(key)
                                : fmt::format("capstan {} does not use it", name_of(task_));
    if (!why.empty()) complain(key, why);
  }
}

bool RecipeInput::is_wrong(std::string_view key) const {
  return std::any_of(errors_.begin(), errors_.end(), [&](const WrongValue& wrong) {
    return wrong.key == key || (wrong.key.starts_with(key) && wrong.key[key.size()] == '.');
  });
}

Recipe RecipeInput::finish(const Also& also) {
  if (!given("data") && given("data.json_path")) recipe_.data = DataClass::json;
  if (!given("data") && given("data.train_data_path")) recipe_.data = DataClass::text_files;
  settle_model();
  settle_data();
  settle_optimizer();
  settle_min_lr();
  // Pretraining's default length gives way to any that was asked for.
  const bool length = given("train.max_steps") || given("train.max_time") || given("train.epochs");
  if (task_ == Task::pretrain && length && !given("train.max_tokens"))
    recipe_.max_tokens = std::nullopt;
  if (given("train.lr_warmup_fraction") && recipe_.lr_warmup_fraction) {
    const bool both = recipe_.lr_warmup_steps.value_or(0) > 0 && *recipe_.lr_warmup_fraction > 0;
    if (given("train.lr_warmup_steps") && both)
      complain("train.lr_warmup_fraction",
               "train.lr_warmup_steps says it too; give one of the two");
    if (given("train.lr_warmup_steps") && *recipe_.lr_warmup_fraction == 0)
      recipe_.lr_warmup_fraction = std::nullopt;
    else
      recipe_.lr_warmup_steps = std::nullopt;
  }
  check_uses();
  // Not refused: these are often set once for all, or left in a recipe.
  const bool narrow = recipe_.precision && recipe_.precision != Precision::f32_true;
  if (recipe_.matmul_precision == MatmulPrecision::high && narrow)
    note_idle("matmul_precision", fmt::format("products of {} are of bf16 or less already",
                                              name_of(*recipe_.precision)));
  // The record of a run has the default, or the rate where that is lower.
  if (recipe_.schedule == LrDecay::constant &&
      recipe_.min_lr != std::min(defaults_.min_lr, recipe_.lr))
    note_idle("train.min_lr", "the schedule is constant");
  if (is_text(recipe_.data) && recipe_.prompt_style != defaults_.prompt_style)
    note_idle("data.prompt_style",
              fmt::format("the data are {}, which have no prompts", name_of(recipe_.data)));
  for (const Problem& p : problems_of(recipe_)) complain(p.key, p.text);
  if (recipe_.precision == Precision::fp8_mixed && task_ != Task::pretrain &&
      task_ != Task::finetune_full)
    complain("precision",
             "fp8-mixed is for training all weights, with pretrain or finetune_full; use "
             "bf16-mixed with adapters");
  std::vector<std::string> lines;
  for (const WrongValue& wrong : errors_)
    lines.push_back(wrong.place.empty() ? wrong.text : wrong.place + ": " + wrong.text);
  Fault fault = lines.empty() ? Fault::file : Fault::usage;
  for (const Error& e : also ? also(recipe_) : std::vector<Error>()) {
    lines.emplace_back(e.what());
    if (e.fault() == Fault::usage) fault = Fault::usage;
  }
  require(lines.empty(), fault, "{}", fmt::join(lines, "\n"));
  return recipe_;
}

}  // namespace capstan
