#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "model/parameters.h"

// LoRA adapters as folders that PEFT (0.13 and later) opens: adapter_config.json, and
// adapter_model.safetensors with "base_model.model.NAME.lora_A.weight" [r, inputs] and
// "….lora_B.weight" [outputs, r] for every adapted linear layer NAME. All errors about them are
// Fault::file.
namespace capstan {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterFile = "adapter_model.safetensors";

struct AdapterConfig {
  LoraOptions lora;
  std::string base;  // base_model_name_or_path: a folder or a name on the hub; empty if unknown
};

// Whether the folder has an adapter_config.json.
bool is_adapter(const std::filesystem::path& dir);

// Missing keys have PEFT's defaults (r 8, lora_alpha 8, lora_dropout 0), not ours. Throws as
// "where:line:column: …" for anything that the options cannot represent: adapters other than LoRA,
// variants of LoRA, ranks or scales that differ between layers, trained biases or whole modules,
// and other target_modules (one of gate, up and down without the others, single layers, patterns).
// Keys that this version of Capstan does not know must be off: null, false, or empty.
AdapterConfig parse_adapter_config(std::string_view text, std::string_view where);
AdapterConfig read_adapter_config(const std::filesystem::path& dir);

// The text of an adapter_config.json for inference, without keys that PEFT 0.13 does not know.
std::string adapter_config_json(const AdapterConfig& config);

// Loads the adapters from the folder's adapter_model.safetensors, converts f32, bf16 and f16 to the
// stored type, and refreshes the weights. Writes nothing unless adapter_config.json has the model's
// r, lora_alpha and use_rslora, and the file has exactly the tensors of its adapters: one error
// lists all differences. The base must be loaded before: PEFT saves a copy of a head that has an
// adapter, which must equal the base's, up to rounding to the narrower type. On sim it checks, but
// reads no data.
void load_adapter(Queue& q, Parameters& params, const std::filesystem::path& dir);

}  // namespace capstan
