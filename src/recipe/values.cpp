#include "recipe/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <cmath>
#include <concepts>
#include <type_traits>

#include "base/error.h"
#include "base/text.h"
#include "recipe/nearest.h"
#include "recipe/scalars.h"

namespace capstan {
namespace {

bool within(Check check, double value) {
  switch (check) {
    case Check::positive: return value > 0;
    case Check::not_negative: return value >= 0;
    case Check::fraction: return value >= 0 && value < 1;
    case Check::power_of_two: {
      int exponent = 0;
      return std::frexp(value, &exponent) == 0.5;
    }
    default: return true;
  }
}

std::string expectation(Check check, std::string_view kind) {
  switch (check) {
    case Check::positive: return fmt::format("{} above 0", kind);
    case Check::not_negative: return fmt::format("{}, 0 or more", kind);
    case Check::fraction: return fmt::format("{} from 0 to below 1", kind);
    case Check::power_of_two: return "a power of two";
    default: return std::string(kind);
  }
}

// How to write "20B" tokens; empty for what is no such number.
std::string in_plain_digits(std::string_view text) {
  constexpr std::string_view kLetters = "kmbt";
  if (text.empty()) return "";
  const size_t thousands =
      kLetters.find(static_cast<char>(std::tolower(static_cast<unsigned char>(text.back()))));
  if (thousands == std::string_view::npos) return "";
  const std::string plain =
      fmt::format("{}e{}", text.substr(0, text.size() - 1), 3 * (thousands + 1));
  return whole_number_of(plain) ? fmt::format("; write {}", plain) : "";
}

int64_t whole_number(const Option& o, std::string_view text) {
  const auto value = whole_number_of(text);
  require(value && within(o.check, static_cast<double>(*value)), Fault::usage,
          "{}: expected {}, found '{}'{}", o.key, expectation(o.check, kWholeNumber), text,
          in_plain_digits(text));
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

// "[0.9, 0.95]", "(0.9, 0.95)" or "0.9,0.95".
Betas betas(const Option& o, std::string_view text) {
  const std::string_view inner = trimmed(text, " []()");
  const size_t comma = inner.find(',');
  require(comma != std::string_view::npos, Fault::usage,
          "{}: expected two numbers like [0.9, 0.95], found '{}'", o.key, text);
  return {number(o, trimmed(inner.substr(0, comma), " ")),
          number(o, trimmed(inner.substr(comma + 1), " "))};
}

template <class T>
constexpr bool kIsOptional = false;
template <class T>
constexpr bool kIsOptional<std::optional<T>> = true;

// A value with parts, that reads and prints itself: Activations, Resume.
template <class T>
concept Structured = requires(std::string_view text, const T& value) {
  { T::parse(text) } -> std::same_as<std::optional<T>>;
  { T::choices() } -> std::same_as<std::vector<std::string>>;
  { value.text() } -> std::same_as<std::string>;
};

// The words that a value of type T may be, and what else it may be.
template <class T>
std::vector<std::string> choices_for() {
  if constexpr (kIsOptional<T>) return choices_for<typename T::value_type>();
  if constexpr (Structured<T>) return T::choices();
  if constexpr (HasNames<T>) {
    const auto names = names_of<T>();
    return {names.begin(), names.end()};
  }
  return {};
}
template <class T>
std::string_view otherwise_for() {
  if constexpr (requires { T::kOtherwise; }) return T::kOtherwise;
  return "";
}

// Of a class only its name counts: "bitsandbytes.optim.AdamW8bit", "litgpt.data.Alpaca2k".
template <class T>
std::string_view without_module(std::string_view text) {
  if constexpr (requires { NameTable<T>::modules; })
    for (const std::string_view module : NameTable<T>::modules)
      if (text.starts_with(module)) return text.substr(text.rfind('.') + 1);
  return text;
}

[[noreturn]] void refuse(const Option& o, std::string_view text, std::string_view word,
                         const std::vector<std::string>& choices, std::string_view otherwise) {
  for (const RefusedWord& refused : o.refused)
    require(word != refused.word, Fault::usage, "{}: {} {}", o.key, word, refused.why);
  std::vector<std::string_view> names;
  for (const std::string_view choice : choices) names.push_back(choice.substr(0, choice.find('[')));
  fail(Fault::usage, "{}: expected {}{}{}{}, found '{}'{}", o.key,
       choices.size() > 1 ? "one of " : "", fmt::join(choices, ", "),
       choices.empty() || otherwise.empty() ? "" : " or ", otherwise, text,
       did_you_mean(word.substr(0, word.find(':')), names));
}

template <class T>
T parsed(const Option& o, std::string_view text) {
  if constexpr (kIsOptional<T>) {
    const bool is_null =
        text == "null" || (std::is_same_v<T, std::optional<std::string>> && text.empty());
    if (is_null) return std::nullopt;
    return parsed<typename T::value_type>(o, text);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return whole_number(o, text);
  } else if constexpr (std::is_same_v<T, double>) {
    return number(o, text);
  } else if constexpr (std::is_same_v<T, bool>) {
    return truth(o, text);
  } else if constexpr (std::is_same_v<T, Betas>) {
    return betas(o, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    require(!text.empty() && text != "null", Fault::usage, "{}: expected a path, found '{}'", o.key,
            text);
    return std::string(text);
  } else {
    const std::string_view word = without_module<T>(text);
    std::optional<T> value;
    if constexpr (Structured<T>)
      value = T::parse(word);
    else
      value = value_named<T>(word);
    if (!value) refuse(o, text, word, choices_for<T>(), otherwise_for<T>());
    return *value;
  }
}

template <class T>
std::string text_of(const T& value) {
  if constexpr (kIsOptional<T>)
    return value ? text_of(*value) : "null";
  else if constexpr (std::is_same_v<T, Betas>)
    return fmt::format("[{}, {}]", value.first, value.second);
  else if constexpr (Structured<T>)
    return value.text();
  else if constexpr (HasNames<T>)
    return std::string(name_of(value));
  else
    return fmt::format("{}", value);
}

// Calls `f` with the type of the option's field as its template argument.
template <class F>
auto with_type(const Option& o, F&& f) {
  return std::visit([&]<class T>(T Recipe::*) { return f.template operator()<T>(); }, o.field);
}

}  // namespace

void set_option(Recipe& recipe, const Option& o, std::string_view text) {
  std::visit([&]<class T>(T Recipe::*field) { recipe.*field = parsed<T>(o, text); }, o.field);
}

std::string value_of(const Recipe& recipe, const Option& o) {
  return std::visit([&](auto field) { return text_of(recipe.*field); }, o.field);
}

std::vector<std::string> choices_of(const Option& o) {
  return with_type(o, []<class T>() {
    auto choices = choices_for<T>();
    if (otherwise_for<T>() == kWholeNumber) choices.emplace_back("N");
    return choices;
  });
}

bool can_be_null(const Option& o) {
  return with_type(o, []<class T>() { return kIsOptional<T>; });
}

bool is_string(const Option& o) {
  return with_type(o, []<class T>() {
    return !std::is_arithmetic_v<T> && !std::is_same_v<T, Betas> &&
           !std::is_same_v<T, std::optional<int64_t>> &&
           !std::is_same_v<T, std::optional<double>> && !std::is_same_v<T, std::optional<bool>>;
  });
}

}  // namespace capstan
