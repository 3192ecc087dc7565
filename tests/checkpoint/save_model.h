#pragma once

#include <filesystem>

#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace capstan {

// write_model with the manifest, to a folder that appears under its name when complete.
inline void save_model(Queue& q, const Parameters& params, const std::filesystem::path& dir,
                       const SaveOptions& options = {}) {
  NewFolder folder(dir);
  write_manifest(folder.path(), write_model(q, params, folder.path(), options));
  folder.commit();
}

}  // namespace capstan
