#include "cli/recipe_arguments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "base/error.h"

namespace capstan::cli {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

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

void print_help(const char* command, const char* summary, const Recipe& defaults) {
  fmt::print("capstan {}: {}\n\nusage: capstan {} [--config FILE.yaml] [--key value]…\n\n", command,
             summary, command);
  for (const Option& o : options()) {
    const std::string value = value_of(defaults, o);
    const std::string choices =
        o.choices.empty() ? "" : fmt::format(" ({})", fmt::join(o.choices, "|"));
    fmt::print("  --{:<32}{}{}{}\n", o.key, o.help, choices,
               value.empty() ? "" : fmt::format(" [{}]", value));
  }
}

}  // namespace

std::optional<Recipe> recipe_from(const Arguments& arguments, const char* command,
                                  const char* summary, const Recipe& defaults) {
  for (const std::string& word : arguments) {
    if (word != "--help" && word != "-h") continue;
    print_help(command, summary, defaults);
    return std::nullopt;
  }
  Recipe recipe = defaults;
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
    if (key == "config") attempt([&, &path = value] { read_recipe(recipe, path); });
  for (const auto& [key, value] : pairs)
    if (key != "config")
      attempt([&, &k = key, &v = value] { set_option(recipe, find_option(k), v); });
  require(errors.empty(), Fault::usage, "{}", fmt::join(errors, "\n"));
  return recipe;
}

}  // namespace capstan::cli
