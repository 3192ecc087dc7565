#pragma once

#include <filesystem>
#include <optional>

#include "checkpoint/manifest.h"
#include "model/adapter.h"

// Models as folders that any Hugging Face program opens. All errors about them are Fault::file.
namespace capstan {

// The folder's config.json, with any further end-of-text ids from generation_config.json.
ModelConfig read_config(const std::filesystem::path& dir);

// Loads the parameters from the folder's files (model_folder.h), tensor by tensor; converts f32,
// bf16 and f16 to the stored type, or quantizes; and refreshes the weights. Does not touch
// adapters. Writes nothing unless exactly the tensors that the model needs are there, with their
// shapes (old files may also have a tied head and rope tables): one error lists all differences. On
// sim it checks, but reads no data.
void load_parameters(Queue& q, Parameters& params, const std::filesystem::path& dir);

struct SaveOptions {
  std::optional<DType> dtype;  // f32, bf16 or f16; default: as the parameters are stored
  int64_t max_shard_bytes = 5'000'000'000;
  MergedWeights* merged = nullptr;  // of the same parameters: written instead of the stored weights
  std::string config_like = {};     // as in config_json (model/config.h)
};

// Writes config.json, generation_config.json and the weights: model.safetensors, or shards with an
// index if one file would exceed max_shard_bytes. Omits adapters (options.merged merges them). The
// folder must exist. Needs a few MiB of host memory for any model size. Returns the checksums of
// the files for the manifest, which the caller writes, since other files may follow. Throws
// Fault::usage for quantized weights that are not merged.
Manifest write_model(Queue& q, const Parameters& params, const std::filesystem::path& folder,
                     const SaveOptions& options = {});

// The text of the model's generation_config.json.
std::string generation_config_json(const ModelConfig& config);

}  // namespace capstan
