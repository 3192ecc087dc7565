#include "checkpoint/extra_file.h"

#include "base/error.h"
#include "base/file_reader.h"
#include "base/units.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = 512 << 20;

// For models--NAME/snapshots/REVISION: models--NAME/blobs. Meaningless for other folders.
fs::path blobs_of(const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" ? snapshots.parent_path() / "blobs" : fs::path();
}

}  // namespace

ExtraFile read_extra(const fs::path& folder, const std::string& name) {
  const fs::path path = folder / name;
  std::error_code error;
  const fs::path home = fs::canonical(folder, error);
  const fs::path real = error ? path : fs::canonical(path, error);
  require(!error, Fault::file, "{}: cannot open: {}", path.string(), error.message());
  require(lies_in(real, home) || real.parent_path() == blobs_of(home), Fault::file,
          "{}: expected a file of this folder, found a link to {}, which would be copied; put the "
          "file itself there, or remove the link",
          path.string(), real.string());
  const FileReader file(real, FileReader::Links::refuse);
  require(file.size() <= kMostBytes, Fault::file, "{}: expected at most {}, found {}",
          path.string(), format_bytes(kMostBytes), format_bytes(static_cast<double>(file.size())));
  ExtraFile extra{name, std::string(static_cast<size_t>(file.size()), '\0'), file.mode()};
  file.read(0, std::as_writable_bytes(std::span(extra.contents)));
  return extra;
}

FileSum write_extra(const fs::path& folder, const ExtraFile& file) {
  const fs::path path = folder / file.name;
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  require(!error, Fault::file, "{}: cannot create the folder: {}", path.parent_path().string(),
          error.message());
  return write_text(path, file.contents, file.mode);
}

}  // namespace capstan
