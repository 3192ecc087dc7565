#include "recipe/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "recipe/scalars.h"

namespace capstan {
namespace {

// What LitGPT tells a service that is not here: beside the loggers that are, it does nothing there
// either.
bool is_for_a_service(std::string_view key) {
  static constexpr std::string_view kKeys[] = {"log.teamspace", "log.metadata", "log.log_model",
                                               "log.save_logs", "log.checkpoint_name"};
  return key.starts_with("log.metadata.") ||
         std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

}  // namespace

std::string_view why_fixed(std::string_view key) {
  static constexpr std::pair<std::string_view, std::string_view> kFixed[] = {
      {"optimizer.amsgrad", "is always false"},
      {"optimizer.min_8bit_size", "is always 4096 in AdamW8bit"},
      {"optimizer.block_wise", "is always true in AdamW8bit"},
      {"optimizer.percentile_clipping", "is always 100 (off); train.max_norm clips gradients"},
      {"optimizer.optim_bits", "the optimizer's name says it, AdamW or AdamW8bit"},
      {"optimizer.is_paged", "the optimizer's name says it, PagedAdamW or PagedAdamW8bit"}};
  for (const auto& [name, value] : kFixed)
    if (key == name) return value;
  return "";
}

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

std::optional<std::string_view> model_field(std::string_view key) {
  constexpr std::string_view kSection = "model_config.";
  if (!key.starts_with(kSection)) return std::nullopt;
  return key.substr(kSection.size());
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

}  // namespace capstan
