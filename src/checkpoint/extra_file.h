#pragma once

#include <filesystem>
#include <string>

#include "base/files.h"

namespace capstan {

// A file that is copied with a model, in memory: a tokenizer, the recipe. Its name may include
// folders.
struct ExtraFile {
  std::string name;
  std::string contents;
  mode_t mode = kUsualMode;  // its permissions, without the umask

  static ExtraFile text(std::string name, std::string contents) {
    return {std::move(name), std::move(contents)};
  }
  bool operator==(const ExtraFile&) const = default;
};

// Reads a file of a model's folder, with its permissions, for a copy in another. The folder is not
// trusted: throws Fault::file for a link out of it (except those of the Hugging Face hub cache,
// snapshots/REVISION/NAME to blobs/HASH), and for anything that is not a file.
ExtraFile read_extra(const std::filesystem::path& folder, const std::string& name);

// Writes it in a folder, and creates the folders of its name.
FileSum write_extra(const std::filesystem::path& folder, const ExtraFile& file);

}  // namespace capstan
