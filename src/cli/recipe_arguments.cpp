#include "cli/recipe_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.h"
#include "optim/optimizer.h"

namespace capstan::cli {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using Keys = std::span<const std::string_view>;

bool contains(Keys keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

// Splits "--key value" and "--key=value"; keys without their dashes.
Pairs split(const Arguments& arguments, std::vector<std::string>& errors) {
  Pairs pairs;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with("--")) {
      errors.push_back(fmt::format("'{}': expected --key value", word));
    } else if (const size_t eq = word.find('='); eq != std::string::npos) {
      pairs.emplace_back(word.substr(2, eq - 2), word.substr(eq + 1));
    } else if (i + 1 < arguments.size() && !arguments[i + 1].starts_with("--")) {
      pairs.emplace_back(word.substr(2), arguments[++i]);
    } else {
      errors.push_back(fmt::format("{}: expected a value after it", word.substr(2)));
    }
  }
  return pairs;
}

void print_help(const char* command, const char* summary, const Recipe& defaults, Keys unused) {
  fmt::print("capstan {}: {}\n\nusage: capstan {} [--config FILE.yaml] [--key value]…\n\n", command,
             summary, command);
  for (const Option& o : options()) {
    if (contains(unused, o.key)) continue;
    const std::string value = value_of(defaults, o);
    const std::string choices =
        o.choices.empty() ? "" : fmt::format(" ({})", fmt::join(o.choices, "|"));
    fmt::print("  --{:<32}{}{}{}\n", o.key, o.help, choices,
               value.empty() ? "" : fmt::format(" [{}]", value));
  }
}

// Why a key has no effect in this recipe; empty where it has one.
std::string without_effect(const Recipe& r, const std::string& key) {
  static constexpr std::array<std::string_view, 3> kAdamw = {"optimizer.beta1", "optimizer.beta2",
                                                             "optimizer.eps"};
  static constexpr std::array<std::string_view, 3> kSgd = {
      "optimizer.momentum", "optimizer.dampening", "optimizer.nesterov"};
  const bool sizes = key.starts_with("model.") || key == "train.tie_embeddings";
  if (!r.initial_checkpoint_dir.empty() && (sizes || key == "model_config"))
    return "initial_checkpoint_dir has a config.json of its own; give one of the two";
  if (!r.model_config.empty() && sizes) return "model_config says it; give one of the two";
  const bool sgd = parse_optimizer(r.optimizer) == OptimizerOptions::Kind::sgd;
  if (sgd && contains(kAdamw, key)) return "AdamW has it, and the optimizer is SGD";
  if (!sgd && contains(kSgd, key)) return "SGD has it, and the optimizer is AdamW";
  const bool extra = key == "optimizer.dampening" || (key == "optimizer.nesterov" && r.nesterov);
  if (extra && r.momentum == 0) return "needs an optimizer.momentum above 0";
  if (extra && r.nesterov && r.dampening > 0)
    return "optimizer.nesterov and optimizer.dampening exclude each other";
  return "";
}

}  // namespace

std::optional<Recipe> recipe_from(const Arguments& arguments, const char* command,
                                  const char* summary, const Recipe& defaults, Keys unused) {
  for (const std::string& word : arguments) {
    if (word != "--help" && word != "-h") continue;
    print_help(command, summary, defaults, unused);
    return std::nullopt;
  }
  Recipe recipe = defaults;
  std::set<std::string> given;
  std::vector<std::string> errors;
  const Pairs pairs = split(arguments, errors);
  const auto attempt = [&](auto&& action) {
    try {
      action();
    } catch (const Error& e) {
      if (e.fault() == Fault::file) throw;
      errors.emplace_back(e.what());
    }
  };
  for (const auto& [key, value] : pairs)
    if (key == "config") attempt([&, &path = value] { given.merge(read_recipe(recipe, path)); });
  // The file that a run leaves behind has all keys, those without an effect as well.
  std::erase_if(given, [&](const std::string& key) {
    const Option& o = find_option(key);
    return value_of(recipe, o) == value_of(defaults, o);
  });
  for (const auto& [key, value] : pairs)
    if (key != "config")
      attempt([&, &k = key, &v = value] {
        set_option(recipe, find_option(k), v);
        given.insert(k);
      });
  require(errors.empty(), Fault::usage, "{}", fmt::join(errors, "\n"));
  for (const std::string& key : given) {
    const std::string why = contains(unused, key)
                                ? fmt::format("capstan {} does not use it", command)
                                : without_effect(recipe, key);
    if (!why.empty()) errors.push_back(fmt::format("{}: {}", key, why));
  }
  require(errors.empty(), Fault::usage, "{}", fmt::join(errors, "\n"));
  if (!given.contains("train.min_lr")) recipe.min_lr = std::min(recipe.min_lr, recipe.lr);
  return recipe;
}

}  // namespace capstan::cli
