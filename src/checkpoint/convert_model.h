#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>

#include "base/dtype.h"
#include "base/files.h"

namespace capstan {

struct ConvertOptions {
  std::optional<DType> dtype;               // f32, bf16 or f16; default: each tensor keeps its type
  int64_t max_shard_bytes = 5'000'000'000;  // INT64_MAX: one file
  std::map<std::string, std::string> replaced =
      {};  // files to write with this text instead of copying
};

// Throws Fault::usage if writing a model to `to` would take the place of one of the source folders,
// a training checkpoint that a run can resume from, or files that Capstan did not write.
void require_apart(const std::filesystem::path& to,
                   std::initializer_list<std::filesystem::path> sources);
// Gives a folder that is complete its name, `to`. A model that has the name is moved to previous-N
// beside it first, and this is said.
void commit_apart(NewFolder& folder, const std::filesystem::path& to);

// Writes the model of one folder (safetensors or pickles, sharded or not) to another as
// safetensors, tensor by tensor in a few MiB of memory. Copies config.json with the new type, and
// the tokenizer and generation files; omits training states. Tensors that are not floating-point
// keep their type. `to` appears when complete; a model of that name is moved to previous-N beside
// it. Throws Fault::file for problems of either folder, Fault::usage as require_apart does, and for
// values that f16 cannot represent.
void convert_model(const std::filesystem::path& from, const std::filesystem::path& to,
                   const ConvertOptions& options = {});

}  // namespace capstan
