#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_text.h"
#include "base/units.h"
#include "checkpoint/adapter.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kManifestFormat = 1;
constexpr const char* kWhatToDo = "this checkpoint is damaged: copy it again, or use another one";

std::string manifest_text(const Manifest& files) {
  json list = json::object();
  for (const auto& [name, sum] : files) list[name] = {{"bytes", sum.bytes}, {"sha256", sum.sha256}};
  return json{{"format", kManifestFormat}, {"files", list}}.dump(2) + "\n";
}

bool is_inside(const std::string& name) {
  const fs::path path(name);
  if (name.empty() || path.is_absolute() || name.find('\0') != std::string::npos) return false;
  return std::none_of(path.begin(), path.end(),
                      [](const fs::path& p) { return p.empty() || p == "." || p == ".."; });
}

// Absent if it is not what write_manifest writes.
std::optional<Manifest> manifest_of(const json& root) {
  if (!root.is_object() || !root.contains("files") || !root["files"].is_object()) return {};
  Manifest out;
  for (const auto& [name, sum] : root["files"].items()) {
    if (!is_inside(name) || !sum.is_object() || !sum.contains("bytes") || !sum.contains("sha256") ||
        !sum["bytes"].is_number_unsigned() || sum["bytes"].get<uint64_t>() > INT64_MAX ||
        !sum["sha256"].is_string())
      return {};
    out[name] = {sum["bytes"].get<int64_t>(), sum["sha256"].get<std::string>()};
  }
  return out;
}

void check_size(const fs::path& path, const FileSum& expected) {
  std::error_code error;
  require(fs::is_regular_file(path, error), Fault::file, "{}: expected a file of {}, found {}; {}",
          path.string(), count(expected.bytes, "byte"),
          fs::exists(path, error) ? "something else" : "none", kWhatToDo);
  const auto found = static_cast<int64_t>(fs::file_size(path, error));
  require(!error, Fault::file, "{}: cannot read: {}", path.string(), error.message());
  require(found == expected.bytes, Fault::file, "{}: expected {}, found {}: it is {}; {}",
          path.string(), count(expected.bytes, "byte"), found,
          found < expected.bytes ? "truncated" : "too long", kWhatToDo);
}

void check_contents(const fs::path& path, const FileSum& expected) {
  const std::string found = sha256_of_file(path);
  require(found == expected.sha256, Fault::file,
          "{}: expected contents with the SHA-256 {}, found {}; {}", path.string(), expected.sha256,
          found, kWhatToDo);
}

// Files that a reader would treat as part of the checkpoint.
void check_nothing_else(const fs::path& dir, const Manifest& files) {
  const auto check = [&](const fs::path& path) {
    const std::string name = path.lexically_relative(dir).generic_string();
    require(files.contains(name), Fault::file,
            "{}: unexpected file, not listed in MANIFEST.json; remove it", path.string());
  };
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json") ||
        name == kAdapterConfigFile)
      check(entry.path());
  }
  for (const auto& entry : fs::recursive_directory_iterator(dir / "training_state", error))
    if (!entry.is_directory(error)) check(entry.path());
}

}  // namespace

FileSum write_manifest(const fs::path& folder, const Manifest& files) {
  return write_text(folder / kManifest, manifest_text(files));
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifest;
  std::error_code error;
  require(fs::exists(path, error), Fault::file,
          "{}: expected a checkpoint's MANIFEST.json, found none; a save was interrupted, or "
          "Capstan did not write this model",
          path.string());
  const std::string text = read_text(path);
  const auto manifest = manifest_of(parse_json(text, path.string()));
  require(manifest && manifest_text(*manifest) == text, Fault::file,
          "{}: expected what Capstan writes (format {}), found something else; {}", path.string(),
          kManifestFormat, kWhatToDo);
  return *manifest;
}

void verify_sizes(const fs::path& dir) {
  const Manifest files = read_manifest(dir);
  for (const auto& [name, sum] : files) check_size(dir / name, sum);
  check_nothing_else(dir, files);
}

void verify_checkpoint(const fs::path& dir) {
  verify_sizes(dir);
  for (const auto& [name, sum] : read_manifest(dir)) check_contents(dir / name, sum);
}

}  // namespace capstan
