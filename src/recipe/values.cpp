#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "recipe/recipe.h"

namespace capstan {
namespace {

// As Python and YAML write numbers: "1_000" and "+1e-4", too.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto is_digit = [&](size_t i) {
    return i < text.size() && std::isdigit(static_cast<unsigned char>(text[i])) != 0;
  };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    if (text[i] == '+' && i == 0 && text.size() > 1 && text[1] != '-' && text[1] != '+') continue;
    plain += text[i];
  }
  text = plain;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// Whole numbers may be written "3e12" and "5.0", too.
bool parse_whole(std::string_view text, int64_t& value) {
  if (parse_number(text, value)) return true;
  double number = 0;
  if (!parse_number(text, number) || std::trunc(number) != number || std::abs(number) >= 0x1p63)
    return false;
  value = static_cast<int64_t>(number);
  return true;
}

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
  int64_t value = 0;
  require(parse_whole(text, value) && within(o.check, static_cast<double>(value)), Fault::usage,
          "{}: expected {}, found '{}'", o.key, expectation(o.check, "a whole number"), text);
  return value;
}

double number(const Option& o, std::string_view text) {
  double value = 0;
  const auto good = [&](double x) { return std::isfinite(x) && within(o.check, x); };
  require(parse_number(text, value) && good(value), Fault::usage, "{}: expected {}, found '{}'",
          o.key, expectation(o.check, "a number"), text);
  const auto narrow = static_cast<float>(value);
  require(good(narrow), Fault::usage, "{}: expected {}, found '{}', which is {} as a float", o.key,
          expectation(o.check, "a number"), text, narrow);
  return value;
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
    int64_t n = 0;
    if (colon != std::string_view::npos && choice.ends_with(kCount) &&
        name == without_count(choice) && parse_whole(word.substr(colon + 1), n) && n > 0)
      return fmt::format("{}:{}", name, n);
  }
  return std::nullopt;
}

std::string chosen(const Option& o, std::string_view text) {
  const std::string_view word = class_name(o, text);
  if (o.choices.empty()) return std::string(word);
  if (auto found = counted_choice(o, word)) return *found;
  int64_t n = 0;
  const bool or_number = o.check == Check::words;
  if (or_number && parse_whole(word, n) && n >= 0) return std::to_string(n);
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

// Arguments of bitsandbytes' optimizers that have one value here; empty for other keys.
std::string_view fixed_value(std::string_view key) {
  static constexpr std::pair<std::string_view, std::string_view> kFixed[] = {
      {"optimizer.amsgrad", "false"},
      {"optimizer.min_8bit_size", "4096, for AdamW8bit"},
      {"optimizer.block_wise", "true, for AdamW8bit"},
      {"optimizer.percentile_clipping", "100 (none; train.max_norm clips)"},
      {"optimizer.optim_bits", "in the optimizer's name: AdamW or AdamW8bit"},
      {"optimizer.is_paged", "in the optimizer's name: PagedAdamW, PagedAdamW8bit"}};
  for (const auto& [name, value] : kFixed)
    if (key == name) return value;
  return "";
}

// What LitGPT tells the services that it can log to, none of which is here: beside the loggers that
// are, it does nothing there either.
bool is_for_a_service(std::string_view key) {
  static constexpr std::string_view kKeys[] = {
      "log.project",  "log.run",       "log.group",     "log.teamspace",
      "log.metadata", "log.log_model", "log.save_logs", "log.checkpoint_name"};
  return key.starts_with("log.metadata.") ||
         std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

}  // namespace

std::string short_key(std::string_view key) {
  static constexpr std::pair<std::string_view, std::string_view> kLitgptSizes[] = {
      {"model_config.n_layer", "model.num_hidden_layers"},
      {"model_config.n_embd", "model.hidden_size"},
      {"model_config.n_head", "model.num_attention_heads"},
      {"model_config.n_query_groups", "model.num_key_value_heads"},
      {"model_config.head_size", "model.head_dim"},
      {"model_config.intermediate_size", "model.intermediate_size"},
      {"model_config.padded_vocab_size", "model.vocab_size"},
      {"model_config.block_size", "model.max_position_embeddings"},
      {"model_config.norm_eps", "model.rms_norm_eps"},
      {"model_config.rope_base", "model.rope_theta"}};
  for (const auto& [theirs, ours] : kLitgptSizes)
    if (key == theirs) return std::string(ours);
  for (const std::string_view section : {"data", "optimizer"}) {
    if (!key.starts_with(section)) continue;
    const std::string_view rest = key.substr(section.size());
    if (rest == ".class_path") return std::string(section);
    if (rest.starts_with(".init_args."))
      return short_key(
          fmt::format("{}.{}", section, rest.substr(std::string_view(".init_args.").size())));
    if (rest == ".prompt_style.class_path") return "data.prompt_style";
  }
  return std::string(key);
}

std::optional<bool> truth_of(std::string_view text) {
  std::string word(text);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  return std::nullopt;
}

bool changes_nothing(std::string_view key, std::string_view value) {
  static constexpr std::string_view kOff[] = {"optimizer.amsgrad",
                                              "optimizer.maximize",
                                              "optimizer.foreach",
                                              "optimizer.capturable",
                                              "optimizer.differentiable",
                                              "optimizer.fused",
                                              "data.access_token",
                                              "access_token",
                                              "log",
                                              "data.include_multiturn_conversations"};
  const std::string wanted = short_key(key);
  if (is_for_a_service(key)) return true;
  const bool off = value == "null" || value == "None" || truth_of(value) == false;
  return off && std::find(std::begin(kOff), std::end(kOff), wanted) != std::end(kOff);
}

void set_option(Recipe& recipe, const Option& o, std::string_view text) {
  std::visit(Setter{recipe, o, text}, o.field);
}

std::string value_of(const Recipe& recipe, const Option& o) {
  return std::visit([&](auto member) { return text_of(recipe.*member); }, o.field);
}

const Option& find_option(std::string_view key) {
  const std::string wanted = short_key(key);
  std::vector<std::string_view> keys;
  for (const Option& o : options()) {
    if (wanted == o.key) return o;
    keys.emplace_back(o.key);
  }
  const std::string_view fixed = fixed_value(wanted);
  require(fixed.empty(), Fault::usage, "{}: is always {}; leave it out", key, fixed);
  const bool rate = wanted.ends_with("learning_rate");  // LitGPT's, before there was optimizer.lr
  fail(Fault::usage, "{}: no such key{}", key, did_you_mean(rate ? "optimizer.lr" : wanted, keys));
}

}  // namespace capstan
