#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"

namespace capstan {

struct ConvertOptions {
  std::optional<DType> dtype;  // f32, bf16 or f16; without one, each tensor keeps its own
  int64_t max_shard_bytes = 5'000'000'000;           // INT64_MAX: one file
  std::map<std::string, std::string> replaced = {};  // files that are this text instead of a copy
};

// Throws Fault::usage where a model that is written to `to`, and replaces what is there, would take
// one of the folders that it is made of away, the state of a run that can go on, or files that
// Capstan did not write.
void require_apart(const std::filesystem::path& to,
                   std::initializer_list<std::filesystem::path> sources);

// Writes the model of one folder (safetensors or pickles, sharded or not) to another as
// safetensors, tensor by tensor in a few MiB of memory. config.json says the new type and is
// otherwise copied, as are the tokenizer's and the generation's files; training states are left
// behind. Tensors that are no floating numbers keep their type. `to` appears when it is complete; a
// model of that name that Capstan wrote is replaced. Throws Fault::file for anything wrong with
// either folder, Fault::usage as require_apart does, and for values that f16 cannot hold.
void convert_model(const std::filesystem::path& from, const std::filesystem::path& to,
                   const ConvertOptions& options = {});

}  // namespace capstan
