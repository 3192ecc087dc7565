#pragma once

#include "checkpoint/model_folder.h"
#include "checkpoint/tensor_reader.h"
#include "model/parameters.h"

namespace capstan {

// A model's files contain its base, an adapter's the adapters.
enum class Rows : uint8_t { base, adapters };
inline Rows rows_of(const Param& param) {
  return param.adapter ? Rows::adapters : Rows::base;
}
// What a training checkpoint of the model contains.
inline Rows saved_rows(const ModelSpec& spec) {
  return spec.lora ? Rows::adapters : Rows::base;
}

// The checkpoint tensors that make up the stored parameters, with the pieces that this rank keeps:
// none of quantized rows.
std::vector<SavedTensor> stored_parts(const Parameters& params, Rows rows);

// PEFT also saves the weight of a head that has an adapter, next to the adapter.
inline constexpr const char* kHeadCopy = "base_model.model.lm_head.base_layer.weight";
bool has_head_copy(const Parameters& params, Rows rows, const ModelFolder& folder);
SavedTensor head_copy(const Parameters& params);

// Throws Fault::file unless the folder has exactly these tensors of the model, apart from a copy of
// the head.
void check_weights(const Parameters& params, Rows rows, const ModelFolder& folder,
                   const std::filesystem::path& dir);
// Throws Fault::file unless an adapter's config matches the model.
void check_adapter_config(const Parameters& params, const std::filesystem::path& dir);

}  // namespace capstan
