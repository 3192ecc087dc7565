#include "base/output_file.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

// White space apart: an editor may have indented it.
bool begins_with(const fs::path& file, std::string_view begins) {
  std::ifstream in(file, std::ios::binary);
  for (const char expected : begins) {
    if (kWhiteSpace.find(expected) != std::string_view::npos) continue;
    char c = 0;
    if (!(in >> std::ws).get(c) || c != expected) return false;
  }
  return true;
}

}  // namespace

void require_replaceable(std::string_view option, const fs::path& file, const OutputKind& kind) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) return;
  const bool ours = fs::is_regular_file(status) &&
                    (fs::file_size(file, error) == 0 || begins_with(file, kind.begins));
  require(ours, Fault::usage,
          "{}: {} exists and is not {} that Capstan wrote, so it is not replaced; choose another "
          "name, or move it away",
          option, file.string(), kind.name);
}

void require_output(std::string_view option, const fs::path& file, const OutputKind& kind) {
  std::error_code error;
  if (!fs::is_directory(file, error)) require_replaceable(option, file, kind);
  require_writable_file(file);
}

fs::path move_to_previous(const fs::path& folder, std::span<const fs::path> paths) {
  fs::path to;
  std::error_code error;
  for (int n = 1; to.empty() || fs::exists(fs::symlink_status(to, error)); ++n)
    to = folder / fmt::format("previous-{}", n);
  for (const fs::path& from : paths) {
    const fs::path place = to / from.lexically_relative(folder);
    fs::create_directories(place.parent_path(), error);
    if (!error) fs::rename(from, place, error);
    require(!error, Fault::file, "{}: cannot be moved to {}: {}", from.string(), to.string(),
            error.message());
  }
  return to;
}

}  // namespace capstan
