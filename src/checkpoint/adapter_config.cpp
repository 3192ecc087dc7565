#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/json_text.h"
#include "checkpoint/adapter.h"
#include "checkpoint/stored_parts.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kMaxRank = 65536;

// Keys that do not affect what the adapter computes, or only together with one that must be off.
constexpr std::array kHarmless = {"auto_mapping",   "inference_mode", "revision",
                                  "peft_version",   "megatron_core",  "qalora_group_size",
                                  "layers_pattern", "eva_config"};

// Each with its option. `mlp` is three of them.
struct Target {
  const char* name;
  bool LoraOptions::*option;
};
constexpr std::array kTargets = {
    Target{"q_proj", &LoraOptions::query},  Target{"k_proj", &LoraOptions::key},
    Target{"v_proj", &LoraOptions::value},  Target{"o_proj", &LoraOptions::projection},
    Target{"gate_proj", &LoraOptions::mlp}, Target{"up_proj", &LoraOptions::mlp},
    Target{"down_proj", &LoraOptions::mlp}, Target{"lm_head", &LoraOptions::head}};

bool is_off(const json& value) {
  return value.is_null() || value == json(false) || (value.is_structured() && value.empty());
}

// Reads key by key; keys that were not read must be off.
class ConfigReader {
 public:
  ConfigReader(std::string_view text, std::string_view where)
      : text_(text), where_(where), root_(parse_json(text, where)) {
    require(root_.is_object(), Fault::file, "{}: expected an object, found {}",
            text_location(text, where, 0), shown(root_));
  }

  AdapterConfig read() {
    AdapterConfig config;
    LoraOptions& lora = config.lora;
    expect("peft_type", "\"LORA\"", get("peft_type") == "LORA");
    expect("task_type", "\"CAUSAL_LM\"",
           get("task_type").is_null() || get("task_type") == "CAUSAL_LM");
    expect("bias", "\"none\"", get("bias").is_null() || get("bias") == "none");
    read_init();
    lora.r = read_rank();
    lora.alpha = read_number("lora_alpha", 8);
    lora.dropout = read_number("lora_dropout", 0);
    require(lora.dropout >= 0 && lora.dropout < 1, Fault::file,
            "{}: expected a number from 0 to below 1, found {}", at("lora_dropout"), lora.dropout);
    const json& rslora = get("use_rslora");
    require(rslora.is_null() || rslora.is_boolean(), Fault::file,
            "{}: expected true or false, found {}", at("use_rslora"), shown(rslora));
    lora.rslora = rslora == json(true);
    read_targets(lora);
    const json& base = get("base_model_name_or_path");
    require(base.is_null() || base.is_string(), Fault::file, "{}: expected a name, found {}",
            at("base_model_name_or_path"), shown(base));
    if (base.is_string()) config.base = base.get<std::string>();
    for (const char* key : kHarmless) known_.insert(key);
    for (const auto& [key, value] : root_.items())
      if (!known_.contains(key)) expect(key, value.is_boolean() ? "false" : "null", is_off(value));
    return config;
  }

 private:
  // Null if there is none.
  const json& get(const char* key) {
    static const json kNull;
    known_.insert(key);
    const auto it = root_.find(key);
    return it == root_.end() ? kNull : *it;
  }

  std::string at(const std::string& key) const {
    return fmt::format("{}: {}", json_location(text_, where_, {key}), key);
  }

  void expect(const std::string& key, const char* expected, bool ok) const {
    if (ok) return;
    const auto it = root_.find(key);
    fail(Fault::file,
         "{}: expected {}, found {}; Capstan reads plain LoRA of a causal language model: merge "
         "this adapter into its base with PEFT's merge_and_unload() and use the merged model",
         at(key), expected, it == root_.end() ? "none" : shown(*it));
  }

  // Other initializations (pissa, olora, corda, loftq, …) change the base's weights when PEFT loads
  // them.
  void read_init() {
    const json& init = get("init_lora_weights");
    expect("init_lora_weights", "true, false, \"gaussian\", \"eva\" or \"orthogonal\"",
           init.is_null() || init.is_boolean() || init == "gaussian" || init == "eva" ||
               init == "orthogonal");
  }

  int64_t read_rank() {
    const json& r = get("r");
    if (r.is_null()) return 8;
    if (!r.is_number_unsigned() || r.get<uint64_t>() < 1 || r.get<uint64_t>() > kMaxRank)
      fail(Fault::file, "{}: expected a whole number from 1 to {}, found {}", at("r"), kMaxRank,
           shown(r));
    return r.get<int64_t>();
  }

  double read_number(const char* key, double otherwise) {
    const json& value = get(key);
    if (value.is_null()) return otherwise;
    require(value.is_number(), Fault::file, "{}: expected a number, found {}", at(key),
            shown(value));
    return value.get<double>();
  }

  void read_targets(LoraOptions& lora) {
    const json& value = get("target_modules");
    std::set<std::string> names;
    if (value == "all-linear") {
      for (const Target& t : kTargets)
        if (t.option != &LoraOptions::head) names.insert(t.name);
    } else {
      require(value.is_array() && !value.empty(), Fault::file,
              "{}: expected a list of names or \"all-linear\", found {}; list the linear layers by "
              "name, such as \"q_proj\"",
              at("target_modules"), value.is_array() ? "an empty list" : shown(value));
      for (const json& name : value) names.insert(checked_target(name));
    }
    for (const Target& t : kTargets) lora.*t.option = false;
    for (const Target& t : kTargets)
      if (names.contains(t.name)) lora.*t.option = true;
    for (const Target& t : kTargets)
      require(
          !(lora.*t.option) || names.contains(t.name), Fault::file,
          "{}: expected gate_proj, up_proj and down_proj together or none of them, found no {}; "
          "merge this adapter into its base with PEFT's merge_and_unload() and use the merged "
          "model",
          at("target_modules"), t.name);
  }

  std::string checked_target(const json& name) const {
    const auto is_name = [&](const Target& t) { return name == t.name; };
    require(std::any_of(kTargets.begin(), kTargets.end(), is_name), Fault::file,
            "{}: expected names among q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, "
            "down_proj and lm_head, found {}; merge this adapter into its base with PEFT's "
            "merge_and_unload() and use the merged model",
            at("target_modules"), shown(name));
    return name.get<std::string>();
  }

  std::string_view text_, where_;
  json root_;
  std::set<std::string> known_;
};

json shortest(double value) {
  constexpr double kExact = 9007199254740992.0;
  if (value == std::floor(value) && std::abs(value) < kExact) return static_cast<int64_t>(value);
  return value;
}

std::string options_text(const LoraOptions& lora) {
  return fmt::format("r {}, lora_alpha {}, use_rslora {}", lora.r, lora.alpha, lora.rslora);
}

}  // namespace

bool is_adapter(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / kAdapterConfigFile, error);
}

AdapterConfig parse_adapter_config(std::string_view text, std::string_view where) {
  return ConfigReader(text, where).read();
}

AdapterConfig read_adapter_config(const fs::path& dir) {
  const fs::path path = dir / kAdapterConfigFile;
  return parse_adapter_config(read_text(path), path.string());
}

std::string adapter_config_json(const AdapterConfig& config) {
  const LoraOptions& lora = config.lora;
  std::vector<std::string> targets;
  for (const Target& t : kTargets)
    if (lora.*t.option) targets.emplace_back(t.name);
  const nlohmann::ordered_json out = {
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"inference_mode", true},
      {"base_model_name_or_path", config.base.empty() ? json(nullptr) : json(config.base)},
      {"revision", nullptr},
      {"r", lora.r},
      {"lora_alpha", shortest(lora.alpha)},
      {"lora_dropout", lora.dropout},
      {"use_rslora", lora.rslora},
      {"use_dora", false},
      {"target_modules", targets},
      {"modules_to_save", nullptr},
      {"layers_to_transform", nullptr},
      {"layers_pattern", nullptr},
      {"rank_pattern", json::object()},
      {"alpha_pattern", json::object()},
      {"bias", "none"},
      {"fan_in_fan_out", false},
      {"init_lora_weights", true}};
  // A folder's name may contain any bytes: a save must not fail because of them.
  return out.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

void check_adapter_config(const Parameters& params, const fs::path& dir) {
  const auto& lora = params.spec().lora;
  require(lora.has_value(), Fault::bug, "{}: an adapter for a model without adapters",
          dir.string());
  const std::string expected = options_text(*lora);
  const std::string found = options_text(read_adapter_config(dir).lora);
  require(found == expected, Fault::file,
          "{}: expected {}, found {}; use the options that the adapter was trained with",
          (dir / kAdapterConfigFile).string(), expected, found);
}

}  // namespace capstan
