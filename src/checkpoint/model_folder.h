#pragma once

#include <filesystem>
#include <memory>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_reader.h"

namespace capstan {

// The weights of a Hugging Face model folder, from the first of these that exists:
//   model.safetensors, or the shards that model.safetensors.index.json names
//   pytorch_model.bin, or the shards that pytorch_model.bin.index.json names
// Opening reads and checks all headers, but no data.
class ModelFolder {
 public:
  // Throws Fault::file: no weights, a shard that is missing or outside the folder, a tensor that is
  // in the index but not in its shard.
  explicit ModelFolder(const std::filesystem::path& dir);
  // The adapter_model.safetensors of an adapter's folder.
  static ModelFolder of_adapter(const std::filesystem::path& dir);

  // By name, over all files.
  const TensorEntries& tensors() const { return tensors_; }
  // The permissions common to all files.
  mode_t mode() const;

 private:
  ModelFolder() = default;
  void open_shards(const std::filesystem::path& index, std::string_view ending);
  const TensorFile& add_file(const std::filesystem::path& path);

  std::filesystem::path dir_;
  std::vector<std::unique_ptr<TensorFile>> files_;
  TensorEntries tensors_;
};

}  // namespace capstan
