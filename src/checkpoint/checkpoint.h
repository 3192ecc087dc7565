#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/manifest.h"
#include "model/adapter.h"

// Models as folders that any Hugging Face program opens. All errors about them are Fault::file.
namespace capstan {

// The folder's config.json, with the ids of generation_config.json that end a text, if it has more.
ModelConfig read_config(const std::filesystem::path& dir);

// Fills the parameters from the folder's files (model_folder.h), converting f32, bf16 and f16 to
// the stored type or quantizing, tensor by tensor, and refreshes the weights. Adapters are left as
// they are. Nothing is written unless every tensor that the model needs is there with its shape and
// no other is (but for a tied head and rope's tables, which old files have): one error names all
// that differ. On sim it checks, and reads no data.
void load_parameters(Queue& q, Parameters& params, const std::filesystem::path& dir);

struct SaveOptions {
  std::optional<DType> dtype;  // f32, bf16 or f16; without one, as the parameters are stored
  int64_t max_shard_bytes = 5'000'000'000;
  MergedWeights* merged = nullptr;  // of the same parameters: written instead of what is stored
  std::string config_like = {};     // as config_json (model/config.h) has it
};

// Writes config.json, generation_config.json and the weights: model.safetensors, or shards with an
// index when one file would exceed max_shard_bytes. Adapters are left out (options.merged folds
// them in). The folder must exist. Needs a few MiB of host memory, whatever the model's size.
// Returns the sums of the files: for the manifest, which is left to the caller, since other files
// may follow. Throws Fault::usage for quantized weights that are not merged.
Manifest write_model(Queue& q, const Parameters& params, const std::filesystem::path& folder,
                     const SaveOptions& options = {});

// As write_model, with the manifest, to a folder that appears under its name when it is complete. A
// checkpoint that has the name is replaced by it, tokenizer and all; any other folder with files is
// refused.
void save_model(Queue& q, const Parameters& params, const std::filesystem::path& dir,
                const SaveOptions& options = {});

// The text of the model's generation_config.json.
std::string generation_config_json(const ModelConfig& config);

}  // namespace capstan
