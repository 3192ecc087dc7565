#pragma once

#include <deque>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"

namespace capstan {

// The weights of a Hugging Face model folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Opening reads and checks all headers, and no data.
class ModelFolder {
 public:
  // Throws Fault::file: nothing to read (pickles are not), a shard that is missing or lies outside
  // the folder, a tensor that the index has and its shard has not.
  explicit ModelFolder(const std::filesystem::path& dir);

  struct Entry {
    const SafetensorsFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  // By name, over all files.
  const std::map<std::string, Entry, std::less<>>& tensors() const { return tensors_; }

 private:
  void open_shards(const std::filesystem::path& index);
  const SafetensorsFile& add_file(const std::filesystem::path& path);

  std::filesystem::path dir_;
  std::deque<SafetensorsFile> files_;  // entries point into it: it must not move them
  std::map<std::string, Entry, std::less<>> tensors_;
};

}  // namespace capstan
