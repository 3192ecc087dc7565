#include "cli/app.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"
#include "recipe/recipe.h"

namespace capstan::cli {
namespace {

// What CLI11 could not place.
void refuse(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return;
  const std::string& word = words.front();
  if (!word.starts_with("-"))
    fail(Fault::usage, "'{}': not expected; a text of several words needs quotes", word);
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_lnames().empty()) names.push_back("--" + option->get_lnames().front());
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::string given = word.substr(0, word.find('='));
  fail(Fault::usage, "{}: no such option (did you mean {}?); '{} --help' tells them", given,
       nearest(given, views), app.get_name());
}

}  // namespace

bool parse(CLI::App& app, const Arguments& arguments) {
  app.allow_extras();
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::ParseError& e) {
    fail(Fault::usage, "{}; '{} --help' tells the options", e.what(), app.get_name());
  }
  refuse(app, app.remaining());
  return true;
}

CLI::Validator number(double least, double most) {
  return {
      [=](const std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == 0 && std::isfinite(value) && value >= least && value <= most)
          return "";
        const std::string range = std::isfinite(most) ? fmt::format("from {} to {}", least, most)
                                                      : fmt::format("of {} or more", least);
        return fmt::format("expected a number {}, found '{}'", range, text);
      },
      ""};
}

void add_sampling(CLI::App& app, GenerateOptions& g) {
  app.add_option("--max_new_tokens", g.max_new_tokens, "length of each answer at most")
      ->capture_default_str()
      ->check(number(1));
  app.add_option("--top_k", g.sampling.top_k, "among the k most likely; 0: all")
      ->capture_default_str()
      ->check(number(0));
  app.add_option("--top_p", g.sampling.top_p, "among the likeliest that reach this probability")
      ->capture_default_str()
      ->check(number(0, 1));
  app.add_option("--temperature", g.sampling.temperature, "0: always the most likely")
      ->capture_default_str()
      ->check(number(0));
  app.add_option("--seed", g.seed, "of the draws")->capture_default_str()->check(number(0));
}

void add_precision(CLI::App& app, std::string& precision) {
  app.add_option("--precision", precision,
                 "32-true or bf16-true; else bf16-true on a GPU or for a checkpoint in bf16, "
                 "32-true otherwise");
}

void add_accelerator(CLI::App& app, std::string& accelerator) {
  app.add_option("--accelerator", accelerator, "what computes; auto is a GPU where there is one")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "gpu"}));
}

}  // namespace capstan::cli
