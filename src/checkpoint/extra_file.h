#pragma once

#include <filesystem>
#include <string>

#include "base/files.h"

namespace capstan {

// A file that goes along with a model, in memory: a tokenizer, the recipe. The name may have
// folders in it.
struct ExtraFile {
  std::string name;
  std::string contents;
  mode_t mode = kUsualMode;  // its permissions, less the umask

  static ExtraFile text(std::string name, std::string contents) {
    return {std::move(name), std::move(contents)};
  }
  bool operator==(const ExtraFile&) const = default;
};

// A file of a model's folder, with its permissions, for a copy in another. The folder may come from
// a stranger: throws Fault::file for a link that leads out of it, but for those that the cache of
// Hugging Face's hub has (snapshots/REVISION/NAME to blobs/HASH), and for all that is no file.
ExtraFile read_extra(const std::filesystem::path& folder, const std::string& name);

// Writes it in a folder, and makes the folders of its name.
FileSum write_extra(const std::filesystem::path& folder, const ExtraFile& file);

}  // namespace capstan
