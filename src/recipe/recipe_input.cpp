#include "recipe/recipe_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "recipe/check.h"
#include "recipe/keys.h"
#include "recipe/values.h"

namespace capstan {

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
      notes_.push_back(fmt::format("{} ({}): dropped, {} does not have it", wrong.key, wrong.place,
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
  notes_.push_back(
      fmt::format("{} ({}): has no effect: {}", key, origin_of(find_option(key)), why));
}

// A class that a later source names, as the command line does, replaces the one before. What the
// two have in common stays.
void RecipeInput::drop_other_arguments(const std::string& section) {
  const auto named = given_.find(section);
  if (named == given_.end()) return;
  const std::string is_now = value_of(recipe_, find_option(section));
  for (const Option& o : options()) {
    const auto it = given_.find(std::string_view(o.key));
    const bool earlier = it != given_.end() && it->second.source < named->second.source;
    const bool has = std::all_of(o.needs.begin(), o.needs.end(), [&](const Condition& c) {
      return !c.of_class || c.holds(recipe_, task_);
    });
    if (!std::string_view(o.key).starts_with(section + ".") || !earlier || has) continue;
    notes_.push_back(
        fmt::format("{} ({}): dropped, {} does not have it", o.key, it->second.place, is_now));
    set_option(recipe_, o, value_of(defaults_, o));
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

void RecipeInput::check_uses() {
  for (const auto& [key, given] : given_) {
    const Option& option = find_option(key);
    // The record of a run has all keys; what is at its default does no harm.
    if (value_of(recipe_, option) == value_of(defaults_, option)) continue;
    using enum Condition::Unmet;
    if (!option.used_by(task_))
      complain(key, fmt::format("capstan {} does not use it", name_of(task_)));
    else if (const auto refusal = unmet(option, refused_if_given, recipe_, task_))
      complain(key, *refusal);
    else if (const auto why = unmet(option, noted, recipe_, task_))
      note_idle(key, *why);
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
  drop_other_arguments("data");
  drop_other_arguments("optimizer");
  // As torch.optim.SGD has it by itself.
  const bool sgd = recipe_.optimizer.kind == OptimizerKind::sgd;
  if (sgd && !given("optimizer.weight_decay")) recipe_.weight_decay = 0;
  settle_min_lr();
  // Pretraining's default length gives way to any that was asked for.
  const bool length = given("train.max_steps") || given("train.max_time") || given("train.epochs");
  if (task_ == Task::pretrain && length && !given("train.max_tokens"))
    recipe_.max_tokens = std::nullopt;
  if (given("train.lr_warmup_fraction") && recipe_.lr_warmup_fraction) {
    const bool both = recipe_.lr_warmup_steps.value_or(0) > 0 && *recipe_.lr_warmup_fraction > 0;
    if (given("train.lr_warmup_steps") && both)
      complain("train.lr_warmup_fraction",
               "train.lr_warmup_steps sets the warm-up too; give only one of the two");
    if (given("train.lr_warmup_steps") && *recipe_.lr_warmup_fraction == 0)
      recipe_.lr_warmup_fraction = std::nullopt;
    else
      recipe_.lr_warmup_steps = std::nullopt;
  }
  check_uses();
  for (const Problem& p : problems_of(recipe_, task_)) complain(p.key, p.text);
  std::vector<std::string> lines;
  for (const WrongValue& wrong : errors_)
    lines.push_back(wrong.place.empty() ? wrong.text : wrong.place + ": " + wrong.text);
  Fault fault = lines.empty() ? Fault::file : Fault::usage;
  for (const Error& e : also ? also(recipe_) : std::vector<Error>()) {
    lines.emplace_back(e.what());
    if (e.fault() == Fault::usage) fault = Fault::usage;
  }
  // A file that is no recipe has thousands; nobody reads more than these.
  constexpr size_t kMostShown = 50;
  if (lines.size() > kMostShown) {
    const auto more = std::ssize(lines) - static_cast<int64_t>(kMostShown);
    lines.resize(kMostShown);
    lines.push_back(fmt::format("and {}", count(more, "more error")));
  }
  require(lines.empty(), fault, "{}", fmt::join(lines, "\n"));
  return recipe_;
}

}  // namespace capstan
