#include "cli/recipe_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/command_line.h"
#include "recipe/values.h"
#include "train/setup.h"

namespace capstan::cli {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct Parsed {
  Pairs pairs;                     // keys without their dashes, in order
  std::vector<std::string> files;  // from --config
  bool print_config = false;
};

std::string help_of(const Option& o, const Recipe& defaults) {
  const auto choices = choices_of(o);
  return fmt::format("{}{} [{}]", o.help,
                     choices.empty() ? "" : fmt::format(" ({})", fmt::join(choices, "|")),
                     value_of(defaults, o));
}

std::string group_of(std::string_view key) {
  const size_t dot = key.find('.');
  if (key == "data" || key == "optimizer") return std::string(key);
  if (key.starts_with("lora_")) return "LoRA";
  return dot == std::string_view::npos ? "run" : std::string(key.substr(0, dot));
}

// The command for LitGPT's former "finetune full", before it was one word.
std::string command_of(const std::string& word) {
  std::error_code error;
  if (std::filesystem::is_directory(word, error)) return "";
  if (word == "full") return "finetune_full";
  return word == "lora" || word == "qlora" ? "finetune_lora" : "";
}

// CLI11 leaves over keys in LitGPT's long form, unknown keys, and words without a key. The first
// such word is the value of the key `first`, if there is one.
void parse_rest(const std::vector<std::string>& rest, const char* first, Pairs& pairs,
                RecipeInput& input) {
  for (size_t i = 0; i < rest.size(); ++i) {
    const std::string& word = rest[i];
    if (!word.starts_with("--")) {
      if (const std::string command = command_of(word); first != nullptr && !command.empty())
        input.add_error(
            fmt::format("'{}': is part of a command's name here: capstan {}", word, command));
      else if (const char* const key = std::exchange(first, nullptr))
        pairs.emplace_back(key, word);
      else
        input.add_error(fmt::format("'{}': expected --key value", word));
    } else if (const size_t eq = word.find('='); eq != std::string::npos) {
      pairs.emplace_back(word.substr(2, eq - 2), word.substr(eq + 1));
    } else if (i + 1 < rest.size() && !rest[i + 1].starts_with("--")) {
      pairs.emplace_back(word.substr(2), rest[++i]);
    } else {
      pairs.emplace_back(word.substr(2), "");
    }
  }
}

// Walks the option table. Returns nothing for --help.
std::optional<Parsed> parse(const Arguments& arguments, Task task, std::string_view summary,
                            const Recipe& defaults, RecipeInput& input) {
  const char* const first = task == Task::finetune_full || task == Task::finetune_lora
                                ? "checkpoint_dir"
                            : task == Task::pretrain ? "model_name"
                                                     : nullptr;
  CommandLine line(std::string(summary),
                   fmt::format("capstan {}{}", name_of(task),
                               first == nullptr ? "" : fmt::format(" [{}]", first)));
  Parsed parsed;
  line.list("--config", parsed.files, "recipe (a YAML file); if several set a key, the last wins",
            "run");
  line.flag("--print_config", parsed.print_config,
            "print the recipe and the source of each value, then exit", "run");
  for (const Option& o : options()) {
    if (!o.used_by(task)) continue;
    const std::string key(o.key);
    const auto note = [&parsed, key](const std::string& value) {
      parsed.pairs.emplace_back(key, value);
    };
    line.key("--" + key, note, help_of(o, defaults), group_of(key),
             std::holds_alternative<bool Recipe::*>(o.field)
                 ? std::vector<std::string>{"true", "false"}
                 : choices_of(o));
  }
  const CommandLine::Known known = line.parse_known(arguments);
  if (known.help) return std::nullopt;
  if (!known.error.empty()) input.add_error(known.error);
  parse_rest(known.rest, first, parsed.pairs, input);
  return parsed;
}

void set_all(RecipeInput& input, const Pairs& pairs) {
  for (const auto& [key, value] : pairs) {
    bool is_flag = false;
    try {
      is_flag = std::holds_alternative<bool Recipe::*>(find_option(key).field);
    } catch (const Error&) {  // set() reports it
    }
    if (!value.empty() && value != "{}")
      input.set(key, value);
    else if (is_flag)
      input.set(key, "true");  // --data.mask_prompt alone
    else
      input.add_error(fmt::format("{}: expected a value", key));
  }
}

}  // namespace

std::optional<Recipe> recipe_from(const Arguments& arguments, Task task, std::string_view summary,
                                  const Recipe& defaults, Inputs inputs, GivenKeys* given) {
  RecipeInput input(task, defaults);
  const auto parsed = parse(arguments, task, summary, defaults, input);
  if (!parsed) return std::nullopt;
  for (const std::string& file : parsed->files) input.read_file(file);
  set_all(input, parsed->pairs);
  RecipeInput::Also also;
  if (inputs != Inputs::none && !parsed->print_config)
    also = [&](const Recipe& r) {
      const InputCheck check{.plan = inputs == Inputs::of_plan, .data = !input.is_wrong("data")};
      return input_errors(r, task, check);
    };
  Recipe recipe = input.finish(also);
  for (const std::string& note : input.notes()) log::info("{}", note);
  if (given != nullptr)
    for (const Option& o : options())
      if (input.given(o.key)) given->emplace(o.key, input.origin_of(o));
  if (parsed->print_config) {
    fmt::print("{}", input.print_config(recipe));
    return std::nullopt;
  }
  return recipe;
}

Task task_of(const Arguments& arguments) {
  RecipeInput input(Task::finetune_lora, defaults_of(Task::finetune_lora));
  const auto given = [&](const char* key) { return input.given(key); };
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) input.read_file(arguments[i + 1]);
    if (arguments[i].starts_with("--config=")) input.read_file(arguments[i].substr(9));
    if (arguments[i].starts_with("--lora_") || arguments[i].starts_with("--quantize"))
      return Task::finetune_lora;
    if (arguments[i].starts_with("--checkpoint_dir")) input.set("checkpoint_dir", "given");
  }
  for (const Option& o : options())
    if (std::string_view(o.key).starts_with("lora_") && given(o.key)) return Task::finetune_lora;
  if (input.sets("quantize")) return Task::finetune_lora;
  return given("checkpoint_dir") ? Task::finetune_full : Task::pretrain;
}

}  // namespace capstan::cli
