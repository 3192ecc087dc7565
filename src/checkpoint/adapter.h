#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "model/parameters.h"

// LoRA's adapters as folders that PEFT (0.13 and later) opens: adapter_config.json, and
// adapter_model.safetensors with "base_model.model.NAME.lora_A.weight" [r, inputs] and
// "….lora_B.weight" [outputs, r] for every adapted linear map NAME. All errors about them are
// Fault::file.
namespace capstan {

inline constexpr std::string_view kAdapterConfigFile = "adapter_config.json";
inline constexpr std::string_view kAdapterFile = "adapter_model.safetensors";

struct AdapterConfig {
  LoraOptions lora;
  std::string base;  // base_model_name_or_path: a folder or a name on the hub; empty if not told
};

// Whether the folder has an adapter_config.json.
bool is_adapter(const std::filesystem::path& dir);

// Keys that are not there have PEFT's defaults (r 8, lora_alpha 8, lora_dropout 0), not ours.
// Throws as "where:line:column: …" for anything that would make another model than the options do:
// adapters that are not LoRA's, variants of LoRA, ranks or scales that differ from map to map,
// biases or whole modules that were trained, target_modules that the options cannot name (one of
// gate, up and down without the others, single layers, patterns). Keys that this version of Capstan
// does not know must be off: null, false, or empty.
AdapterConfig parse_adapter_config(std::string_view text, std::string_view where);
AdapterConfig read_adapter_config(const std::filesystem::path& dir);

// The text of an adapter_config.json, for inference; with no keys that PEFT 0.13 does not know.
std::string adapter_config_json(const AdapterConfig& config);

// Fills the adapters from the folder's adapter_model.safetensors, converting f32, bf16 and f16 to
// the stored type, and refreshes the weights. Nothing is written unless adapter_config.json has the
// r, lora_alpha and use_rslora of the model, and the file all tensors of its adapters and no other:
// one error names all that differ. The base must be loaded before: PEFT saves a copy of a head that
// has an adapter, which must be that of the base, up to the rounding to the narrower type. On sim
// it checks, and reads no data.
void load_adapter(Queue& q, Parameters& params, const std::filesystem::path& dir);

}  // namespace capstan
