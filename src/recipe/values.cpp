#include "recipe/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "recipe/nearest.h"
#include "recipe/scalars.h"

namespace capstan {
namespace {

bool within(Check check, double value) {
  switch (check) {
    case Check::positive: return value > 0;
    case Check::not_negative: return value >= 0;
    case Check::fraction: return value >= 0 && value < 1;
    default: return true;
  }
}

std::string expectation(Check check, std::string_view kind) {
  switch (check) {
    case Check::positive: return fmt::format("{} above 0", kind);
    case Check::not_negative: return fmt::format("{}, 0 or more", kind);
    case Check::fraction: return fmt::format("{} from 0 to below 1", kind);
    default: return std::string(kind);
  }
}

int64_t whole_number(const Option& o, std::string_view text) {
  const auto value = whole_number_of(text);
  require(value && within(o.check, static_cast<double>(*value)), Fault::usage,
          "{}: expected {}, found '{}'", o.key, expectation(o.check, "a whole number"), text);
  return *value;
}

double number(const Option& o, std::string_view text) {
  const auto value = number_of(text);
  const auto good = [&](double x) { return std::isfinite(x) && within(o.check, x); };
  require(value && good(*value), Fault::usage, "{}: expected {}, found '{}'", o.key,
          expectation(o.check, "a number"), text);
  const auto narrow = static_cast<float>(*value);
  require(good(narrow), Fault::usage, "{}: expected {}, found '{}', which is {} as a float", o.key,
          expectation(o.check, "a number"), text, narrow);
  return *value;
}

bool truth(const Option& o, std::string_view text) {
  const auto value = truth_of(text);
  require(value.has_value(), Fault::usage, "{}: expected true or false, found '{}'", o.key, text);
  return *value;
}

std::string_view trimmed(std::string_view text, std::string_view around) {
  const size_t begin = text.find_first_not_of(around);
  if (begin == std::string_view::npos) return "";
  return text.substr(begin, text.find_last_not_of(around) - begin + 1);
}

// "[0.9, 0.95]", "(0.9, 0.95)" or "0.9,0.95".
Betas betas(const Option& o, std::string_view text) {
  const std::string_view inner = trimmed(text, " []()");
  const size_t comma = inner.find(',');
  require(comma != std::string_view::npos, Fault::usage,
          "{}: expected two numbers like [0.9, 0.95], found '{}'", o.key, text);
  return {number(o, trimmed(inner.substr(0, comma), " ")),
          number(o, trimmed(inner.substr(comma + 1), " "))};
}

// Of a class only its name counts: "bitsandbytes.optim.AdamW8bit", "litgpt.data.Alpaca2k".
std::string_view class_name(const Option& o, std::string_view text) {
  const std::string_view key = o.key;
  if (key != "data" && key != "optimizer") return text;
  for (const std::string_view module :
       {"torch.optim.", "bitsandbytes.optim.", "bnb.optim.", "litgpt.data."})
    if (text.starts_with(module)) return text.substr(text.rfind('.') + 1);
  return text;
}

constexpr std::string_view kCount = "[:N]";  // at the end of a choice that may have one

std::string_view without_count(std::string_view choice) {
  return choice.ends_with(kCount) ? choice.substr(0, choice.size() - kCount.size()) : choice;
}

// A choice, or one that may have a count with a count.
std::optional<std::string> counted_choice(const Option& o, std::string_view word) {
  const size_t colon = word.find(':');
  const std::string_view name = word.substr(0, colon);
  for (const std::string_view choice : o.choices) {
    if (word == without_count(choice)) return std::string(word);
    if (colon != std::string_view::npos && choice.ends_with(kCount) &&
        name == without_count(choice))
      if (const auto n = whole_number_of(word.substr(colon + 1)); n && *n > 0)
        return fmt::format("{}:{}", name, *n);
  }
  return std::nullopt;
}

std::string chosen(const Option& o, std::string_view text) {
  const std::string_view word = class_name(o, text);
  if (o.choices.empty()) return std::string(word);
  if (auto found = counted_choice(o, word)) return *found;
  const bool or_number = o.check == Check::words;
  if (const auto n = whole_number_of(word); or_number && n && *n >= 0) return std::to_string(*n);
  std::vector<std::string_view> names;
  for (const std::string_view choice : o.choices) names.push_back(without_count(choice));
  fail(Fault::usage, "{}: expected {}{}{}, found '{}'{}", o.key,
       o.choices.size() > 1 ? "one of " : "", fmt::join(o.choices, ", "),
       or_number ? " or a whole number" : "", text,
       did_you_mean(word.substr(0, word.find(':')), names));
}

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(const Betas& value) {
  return fmt::format("[{}, {}]", value.first, value.second);
}
template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "null";
}

struct Setter {
  Recipe& recipe;
  const Option& o;
  std::string_view text;

  void operator()(int64_t Recipe::*f) const { recipe.*f = whole_number(o, text); }
  void operator()(double Recipe::*f) const { recipe.*f = number(o, text); }
  void operator()(bool Recipe::*f) const { recipe.*f = truth(o, text); }
  void operator()(Betas Recipe::*f) const { recipe.*f = betas(o, text); }
  void operator()(std::string Recipe::*f) const {
    recipe.*f = text == "null" || (text.empty() && o.choices.empty()) ? "" : chosen(o, text);
  }
  void operator()(std::optional<int64_t> Recipe::*f) const {
    recipe.*f = text == "null" ? std::nullopt : std::optional(whole_number(o, text));
  }
  void operator()(std::optional<double> Recipe::*f) const {
    recipe.*f = text == "null" ? std::nullopt : std::optional(number(o, text));
  }
  void operator()(std::optional<bool> Recipe::*f) const {
    recipe.*f = text == "null" ? std::nullopt : std::optional(truth(o, text));
  }
};

}  // namespace

void set_option(Recipe& recipe, const Option& o, std::string_view text) {
  std::visit(Setter{recipe, o, text}, o.field);
}

std::string value_of(const Recipe& recipe, const Option& o) {
  return std::visit([&](auto member) { return text_of(recipe.*member); }, o.field);
}

}  // namespace capstan
