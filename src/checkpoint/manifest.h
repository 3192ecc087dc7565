#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/files.h"

// MANIFEST.json says what every file of a checkpoint holds:
//   {"files": {"config.json": {"bytes": 612, "sha256": "…"},
//              "training_state/state.json": {…}}, "format": 1}
// It is written last, as JSON with an indent of 2 and a newline at the end: the text is determined
// by what it says, so that any other text with the same meaning is a damaged one.
namespace capstan {

inline constexpr std::string_view kManifest = "MANIFEST.json";

// By name, relative to the folder, with '/' between parts.
using Manifest = std::map<std::string, FileSum>;

FileSum write_manifest(const std::filesystem::path& folder, const Manifest& files);
// Throws Fault::file if there is none, or for any text that write_manifest would not write.
Manifest read_manifest(const std::filesystem::path& folder);

// Reads every file of a checkpoint and compares it with MANIFEST.json. Throws Fault::file, naming
// the file and what is wrong with it: missing, shorter or longer, other contents. Files that the
// manifest does not name (a README, say) are left alone, but for those that would be taken for a
// part of the checkpoint: *.safetensors, *.safetensors.index.json, adapter_config.json, and all in
// training_state/.
void verify_checkpoint(const std::filesystem::path& dir);

// As verify_checkpoint, by the sizes alone: quick, and blind for flipped bits.
void verify_sizes(const std::filesystem::path& dir);

}  // namespace capstan
