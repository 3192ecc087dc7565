#include "recipe/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace capstan {
namespace {

template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
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

template <class T>
void set_number(Recipe& recipe, T Recipe::*member, const Option& o, std::string_view text,
                std::string_view kind) {
  T value{};
  const auto good = [&](double x) { return std::isfinite(x) && within(o.check, x); };
  require(parse_number(text, value) && good(static_cast<double>(value)), Fault::usage,
          "{}: expected {}, found '{}'", o.key, expectation(o.check, kind), text);
  if constexpr (std::is_same_v<T, double>) {
    const auto narrow = static_cast<float>(value);
    require(good(narrow), Fault::usage, "{}: expected {}, found '{}', which is {} as a float",
            o.key, expectation(o.check, kind), text, narrow);
  }
  recipe.*member = value;
}

// Edits (insert, delete, replace) from one word to another.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::span<const Option> options() {
  using R = Recipe;
  using enum Check;
  static const std::vector<Option> table = {
      {"model_config", &R::model_config, any, "config.json of the model; else the sizes below"},
      {"initial_checkpoint_dir", &R::initial_checkpoint_dir, any, "go on from these weights"},
      {"model.hidden_size", &R::hidden_size, positive, "channels of the residual stream"},
      {"model.intermediate_size", &R::intermediate_size, positive, "channels inside the MLP"},
      {"model.num_hidden_layers", &R::num_hidden_layers, positive, "blocks"},
      {"model.num_attention_heads", &R::num_attention_heads, positive, "query heads"},
      {"model.num_key_value_heads", &R::num_key_value_heads, positive, "key and value heads"},
      {"train.tie_embeddings", &R::tie_embeddings, any, "use the embedding as the output head"},
      {"data.train_data_path", &R::train_data_path, any, "a .txt file, or a folder of them"},
      {"data.val_split_fraction", &R::val_split_fraction, fraction, "samples held out"},
      {"data.packed", &R::packed, any, "documents one after the other, without padding"},
      {"out_dir", &R::out_dir, any, "the model goes to its folder 'final'"},
      {"precision",
       &R::precision,
       oneof,
       "types to compute with",
       {"32-true", "bf16-true", "bf16-mixed"}},
      {"activations",
       &R::activations,
       oneof,
       "what the backward pass recomputes",
       {"none", "selective", "block"}},
      {"seed", &R::seed, not_negative, "of initial weights, sample order and the validation split"},
      {"train.global_batch_size", &R::global_batch_size, positive, "samples per optimizer step"},
      {"train.micro_batch_size", &R::micro_batch_size, positive, "samples per pass"},
      {"train.max_steps", &R::max_steps, positive, "optimizer steps"},
      {"train.max_seq_length", &R::max_seq_length, positive, "inputs of a sample at most"},
      {"train.lr_warmup_steps", &R::lr_warmup_steps, not_negative, "steps of linear warm-up"},
      {"train.schedule",
       &R::schedule,
       oneof,
       "learning rate after the warm-up",
       {"constant", "linear", "cosine"}},
      {"train.min_lr", &R::min_lr, not_negative, "learning rate at the end"},
      {"train.max_norm", &R::max_norm, not_negative, "clip the gradient's norm; 0: never"},
      {"train.log_interval", &R::log_interval, positive,
       "steps between lines of progress, where there is no terminal"},
      {"eval.interval", &R::eval_interval, positive, "steps between validations"},
      {"eval.max_iters", &R::eval_max_iters, positive, "micro-batches per validation"},
      {"optimizer",
       &R::optimizer,
       oneof,
       "method",
       {"AdamW", "SGD", "torch.optim.AdamW", "torch.optim.SGD"}},
      {"optimizer.lr", &R::lr, positive, "peak learning rate"},
      {"optimizer.weight_decay", &R::weight_decay, not_negative, "pull of the weights to zero"},
      {"optimizer.decay",
       &R::decay,
       oneof,
       "what it pulls: everything, or not norms and biases",
       {"all", "matrices"}},
      {"optimizer.beta1", &R::beta1, fraction, "AdamW's first moment"},
      {"optimizer.beta2", &R::beta2, fraction, "AdamW's second moment"},
      {"optimizer.eps", &R::eps, positive, "AdamW's epsilon"},
      {"optimizer.momentum", &R::momentum, fraction, "SGD's momentum"},
      {"optimizer.dampening", &R::dampening, fraction, "of the gradient, in SGD's momentum"},
      {"optimizer.nesterov", &R::nesterov, any, "SGD looks ahead along its momentum"},
  };
  return table;
}

void set_option(Recipe& recipe, const Option& o, std::string_view text) {
  if (const auto* f = std::get_if<int64_t Recipe::*>(&o.field))
    return set_number(recipe, *f, o, text, "a whole number");
  if (const auto* f = std::get_if<double Recipe::*>(&o.field))
    return set_number(recipe, *f, o, text, "a number");
  if (const auto* f = std::get_if<bool Recipe::*>(&o.field)) {
    require(text == "true" || text == "false", Fault::usage,
            "{}: expected true or false, found '{}'", o.key, text);
    recipe.*(*f) = text == "true";
    return;
  }
  require(o.check != Check::oneof ||
              std::find(o.choices.begin(), o.choices.end(), text) != o.choices.end(),
          Fault::usage, "{}: expected one of {}, found '{}'", o.key, fmt::join(o.choices, ", "),
          text);
  recipe.*std::get<std::string Recipe::*>(o.field) = text;
}

std::string value_of(const Recipe& recipe, const Option& o) {
  return std::visit([&](auto member) { return fmt::format("{}", recipe.*member); }, o.field);
}

const Option& find_option(std::string_view key) {
  std::vector<std::string_view> keys;
  for (const Option& o : options()) {
    if (key == o.key) return o;
    keys.emplace_back(o.key);
  }
  fail(Fault::usage, "{}: no such key (did you mean {}?)", key, nearest(key, keys));
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> words) {
  const auto last_part = [](std::string_view key) { return key.substr(key.rfind('.') + 1); };
  // What was left out ("lr" for "optimizer.lr", "hidden" for "hidden_size") or put under another
  // section ("train.lr") costs less than two wrong letters.
  const auto cost = [&](std::string_view candidate) -> size_t {
    if (word.size() > 2 && candidate.find(word) != std::string_view::npos) return 2;
    const size_t apart = last_part(word) == word ? 1 : 3;
    return std::min(2 * distance(word, candidate),
                    2 * distance(last_part(word), last_part(candidate)) + apart);
  };
  return *std::min_element(words.begin(), words.end(),
                           [&](auto a, auto b) { return cost(a) < cost(b); });
}

}  // namespace capstan
