#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "recipe/keys.h"
#include "recipe/recipe_input.h"
#include "recipe/scalars.h"
#include "recipe/values.h"

// A model as LitGPT's recipes write it: `model_config:` with the fields of its Config. Sizes are
// keys of ours (short_key); the other fields must say what is so in every Llama.
namespace capstan {
namespace {

constexpr std::string_view kSection = "model_config.";

struct Field {
  std::string_view name;
  std::string_view here;  // the only value that there is
  // LitGPT's default, where that is another: its Config is a GPT-NeoX until it is told otherwise.
  std::string_view theirs = {};
  bool in_config_json = false;  // a model of another architecture here can have another value
};

constexpr Field kFixed[] = {
    {"norm_class_name", "RMSNorm", "LayerNorm"},
    {"mlp_class_name", "LLaMAMLP", "GptNeoxMLP"},
    {"bias", "false", "true"},
    {"parallel_residual", "false", "true"},
    {"rotary_percentage", "1", "0.25"},
    {"attn_bias", "false", "", true},
    {"norm_qk", "false", "", true},
    {"norm_qk_type", "default"},
    {"rope_condense_ratio", "1", "", true},
    {"rope_adjustments", "null", "", true},
    {"rope_interleave", "false"},
    {"rope_local_base_freq", "null"},
    {"sliding_window_size", "null", "", true},
    {"attention_scores_scalar", "null"},
    {"attention_logit_softcapping", "null"},
    {"final_logit_softcapping", "null"},
    {"post_attention_norm", "false"},
    {"post_mlp_norm", "false"},
    {"shared_attention_norm", "false"},
    {"norm_1", "true"},
    {"norm_2", "true"},
    {"scale_embeddings", "false"},
    {"lm_head_bias", "false"},
    {"latent_attention", "null"},
    {"n_expert", "0"},
};

// Names, and what matters only beside values that are refused.
constexpr std::string_view kIdle[] = {"name",
                                      "hf_config",
                                      "vocab_size",
                                      "padding_multiple",
                                      "rope_indices",
                                      "n_expert_groups",
                                      "n_topk_groups",
                                      "n_topk_scores_per_group",
                                      "norm_topk_prob",
                                      "n_shared_expert",
                                      "n_expert_per_token",
                                      "routed_scaling_factor",
                                      "gelu_approximate",
                                      "moe_intermediate_size",
                                      "first_k_dense_replace",
                                      "sliding_window_indices"};

// "1" and "1.0", "false" and "False", "null" and "None" are the same.
bool same_value(std::string_view a, std::string_view b) {
  const auto number = [](std::string_view text) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                    : std::nullopt;
  };
  const auto is_null = [](std::string_view text) { return text == "null" || text == "None"; };
  if (a == b || (is_null(a) && is_null(b))) return true;
  if (const auto x = number(a), y = number(b); x && y) return *x == *y;
  const auto x = truth_of(a), y = truth_of(b);
  return x && y && *x == *y;
}

const Field* find_fixed(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFixed), std::end(kFixed),
                                   [&](const Field& f) { return f.name == name; });
  return found == std::end(kFixed) ? nullptr : found;
}

// What is wrong with a field's value; empty if nothing is.
std::string problem_of(std::string_view name, std::string_view value) {
  if (std::find(std::begin(kIdle), std::end(kIdle), name) != std::end(kIdle)) return "";
  const Field* field = find_fixed(name);
  if (field == nullptr) return "Capstan knows no such field of LitGPT's Config";
  if (same_value(value, field->here)) return "";
  return fmt::format("expected {}, as in a Llama, found '{}'; {}", field->here, value,
                     field->in_config_json
                         ? "for a Mistral, a Qwen or a model with scaled RoPE, set model_config "
                           "to the path of its config.json"
                         : "Capstan does not train models of other families");
}

}  // namespace

void RecipeInput::set_model_field(const std::string& field, const Given& given) {
  const auto before = model_fields_.find(field);
  const bool twice = before != model_fields_.end() && !given.place.empty() &&
                     before->second.source == given.source;
  if (twice) add_error(fmt::format("{}: {}{}: given twice", given.place, kSection, field));
  model_fields_[field] = given;
}

// Whether a later source names another model. Then nothing of the inline one is left.
bool RecipeInput::model_is_replaced() {
  for (const std::string_view key : {"model_name", "model_config", "initial_checkpoint_dir"}) {
    const auto it = given_.find(key);
    if (it == given_.end() || it->second.source <= inline_model_ || it->second.value == "null")
      continue;
    const auto name = model_fields_.find("name");
    const bool same = name != model_fields_.end() && name->second.value == it->second.value;
    if (same && key == "model_name") continue;
    notes_.push_back(
        fmt::format("model_config: dropped its fields, because {} is given {}", key,
                    it->second.place.empty() ? "on the command line" : "in a later file"));
    const int source = it->second.source;
    std::erase_if(given_, [&](const auto& entry) {
      if (!std::string_view(entry.first).starts_with("model.") || entry.second.source >= source)
        return false;
      const Option& option = find_option(entry.first);
      set_option(recipe_, option, value_of(defaults_, option));
      return true;
    });
    std::erase_if(errors_, [&](const WrongValue& wrong) {
      return wrong.key.starts_with("model.") && wrong.source < source;
    });
    return true;
  }
  return false;
}

void RecipeInput::check_model_fields() {
  std::vector<std::string> left_out;
  for (const Field& field : kFixed)
    if (!field.theirs.empty() && !model_fields_.contains(field.name))
      left_out.push_back(
          fmt::format("{} ({}, LitGPT's default is {})", field.name, field.here, field.theirs));
  if (!left_out.empty())
    notes_.push_back(fmt::format("model_config leaves these out, so they are as in a Llama: {}",
                                 fmt::join(left_out, ", ")));
  for (const auto& [name, given] : model_fields_)
    if (const std::string problem = problem_of(name, given.value); !problem.empty())
      errors_.push_back(
          {.text = fmt::format("{}{}: {}", kSection, name, problem), .place = given.place});
}

// LitGPT's defaults are sizes of a model that nobody means, so there are none here.
void RecipeInput::require_model_sizes() {
  for (const std::string_view field : {"n_layer", "n_embd", "n_head", "intermediate_size"})
    if (const std::string key = fmt::format("{}{}", kSection, field); !given(short_key(key)))
      add_error(
          fmt::format("{}: expected a size, found none; an inline model_config needs it", key));
  if (!given("model.max_position_embeddings")) recipe_.max_positions = 4096;
  const auto vocab = model_fields_.find("vocab_size");
  if (given("model.vocab_size") || vocab == model_fields_.end()) return;
  // As LitGPT: rounded up, for the hardware.
  const auto multiple_of = model_fields_.find("padding_multiple");
  Recipe sizes;
  const Option& option = find_option("model.vocab_size");
  try {
    set_option(sizes, option,
               multiple_of == model_fields_.end() ? "512" : multiple_of->second.value);
    const int64_t multiple = sizes.vocab_size.value_or(1);
    set_option(sizes, option, vocab->second.value);
    if (!sizes.vocab_size) return;
    const int64_t over = *sizes.vocab_size % multiple;
    const bool fits = *sizes.vocab_size <= INT64_MAX - multiple;  // else no model has it either
    recipe_.vocab_size = *sizes.vocab_size + (over > 0 && fits ? multiple - over : 0);
    given_["model.vocab_size"] = vocab->second;
  } catch (const Error& e) {
    errors_.push_back({.text = e.what(), .place = vocab->second.place});
  }
}

void RecipeInput::settle_model() {
  if (inline_model_ < 0 || model_is_replaced()) return;
  if (task_ != Task::pretrain)
    return add_error(fmt::format("model_config: capstan {} does not use it", name_of(task_)));
  check_model_fields();
  require_model_sizes();
  // As in LitGPT, the config counts and not the name.
  const auto name = model_fields_.find("name");
  if (recipe_.model_name &&
      (name == model_fields_.end() || name->second.value != *recipe_.model_name))
    note_idle("model_name", "model_config defines the model");
  recipe_.model_name.reset();
  given_.erase("model_name");
}

}  // namespace capstan
