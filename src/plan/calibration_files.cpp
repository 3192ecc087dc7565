// Calibrations in files, and in the user's cache.
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>

#include "base/files.h"
#include "base/json_text.h"
#include "base/log.h"
#include "machine/name.h"
#include "ops/cpu/blas.h"
#include "plan/calibration.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".calibration.json";  // of files in the cache

// Tables of machines read the cache for each of them.
void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> told;
  const std::lock_guard lock(mutex);
  if (told.insert(text).second) log::warn("{}", text);
}

}  // namespace

fs::path calibration_path(std::string_view name) {
  const fs::path folder = cache_folder("calibration");
  if (folder.empty()) return {};
  std::string file;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0)
      file += static_cast<char>(std::tolower(byte));
    else if (!file.empty() && file.back() != '-')
      file += '-';
  }
  return folder / file.append(kEnding);
}

std::vector<Calibration> kept_calibrations() {
  std::vector<Calibration> kept;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(cache_folder("calibration"), error)) {
    if (!entry.path().string().ends_with(kEnding)) continue;
    try {
      kept.push_back(read_calibration(entry.path()));
    } catch (const Error& e) {
      warn_once(fmt::format("{}; ignoring this calibration", e.what()));
    }
  }
  std::sort(kept.begin(), kept.end(),
            [](const Calibration& a, const Calibration& b) { return a.name < b.name; });
  return kept;
}

Calibration named_calibration(const std::string& given) {
  std::error_code error;
  const bool is_there = fs::exists(given, error) && !fs::is_directory(given, error);
  if (is_there || given.find('/') != std::string::npos) return read_calibration(given);
  if (const fs::path kept = calibration_path(given); !kept.empty() && fs::exists(kept, error))
    return read_calibration(kept);
  std::vector<std::string> names;
  for (const Calibration& c : kept_calibrations()) {
    if (c.name == given) return c;
    names.push_back(in_quotes(c.name));
  }
  const fs::path folder = cache_folder("calibration");
  fail(Fault::usage,
       "calibration: there is no file '{}', and no calibration of a machine of that name in {}; {}",
       given, folder.empty() ? "a cache, for which there is no folder" : folder.string(),
       names.empty() ? "there are none at all: 'capstan bench' writes one"
                     : fmt::format("there are {}", fmt::join(names, ", ")));
}

void write_calibration(const fs::path& path, const Calibration& calibration) {
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  require(!error, Fault::file, "{}: cannot create the folder: {}", path.parent_path().string(),
          error.message());
  write_text(path, calibration_json(calibration));
}

Calibration read_calibration(const fs::path& path) {
  return parse_calibration(read_text(path, 1 << 20), path.string());
}

std::optional<Calibration> find_calibration(Device device) {
  if (device == Device::cuda && !cuda_present()) return std::nullopt;
  const std::string name = machine_name(device);
  const fs::path path = calibration_path(name);
  std::error_code error;
  if (path.empty() || !fs::exists(path, error)) return std::nullopt;
  try {
    const Calibration c = read_calibration(path);
    require(c.name == name && c.device == device, Fault::file,
            "{}: the calibration is for {}, but this machine is {}", path.string(), c.name, name);
    return c;
  } catch (const Error& e) {
    log::warn("{}; ignoring this calibration. 'capstan bench' writes a new one", e.what());
    return std::nullopt;
  }
}

void warn_of_other_kernels(const Calibration& c) {
  if (c.device != Device::cpu || c.name != machine_name(c.device)) return;
  const cpu::BlasLibrary& blas = cpu::blas();
  const bool other = c.kernels.empty() ? blas.chosen_by() == cpu::BlasLibrary::ChosenBy::us
                                       : c.kernels != blas.name();
  if (other)
    warn_once(fmt::format(
        "the calibration of {} was measured with {}, but matrix products are computed with {}: "
        "predicted times are wrong until 'capstan bench' measures again",
        c.date, c.kernels.empty() ? "other kernels" : c.kernels, blas.name()));
}

}  // namespace capstan
