#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "base/files.h"

// MANIFEST.json lists every file of a checkpoint:
//   {"files": {"config.json": {"bytes": 612, "sha256": "…"},
//              "training_state/state.json": {…}}, "format": 1}
// It is written last, as JSON with an indent of 2 and a final newline. The text is canonical: any
// other text with the same meaning counts as damaged.
namespace capstan {

inline constexpr std::string_view kManifest = "MANIFEST.json";

// By name, relative to the folder, with '/' between parts.
using Manifest = std::map<std::string, FileSum>;

FileSum write_manifest(const std::filesystem::path& folder, const Manifest& files);
// Throws Fault::file if there is none, or for any text that write_manifest would not write.
Manifest read_manifest(const std::filesystem::path& folder);

// Reads every file of a checkpoint and compares it with MANIFEST.json. Throws Fault::file, naming
// the file and the problem: missing, shorter or longer, other contents. Ignores files that are not
// listed (a README, say), except those that a reader would treat as part of the checkpoint:
// *.safetensors, *.safetensors.index.json, adapter_config.json, and everything in training_state/.
void verify_checkpoint(const std::filesystem::path& dir);

// Like verify_checkpoint, but by sizes only: fast, but does not detect flipped bits.
void verify_sizes(const std::filesystem::path& dir);

}  // namespace capstan
