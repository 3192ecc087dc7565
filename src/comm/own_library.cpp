#include "comm/own_library.h"

#include <dlfcn.h>

#include <filesystem>

#include "base/error.h"

namespace capstan {
namespace {

namespace fs = std::filesystem;

fs::path find_library(const std::string& name) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder / name, folder / ".." / CAPSTAN_LIBRARIES / name})
    if (fs::exists(place, error)) return place;
  return {};
}

}  // namespace

void* function_of_library(const char* library, const char* function) {
  const fs::path path = find_library(fmt::format("libcapstan_{}.so", library));
  if (path.empty()) return nullptr;
  void* const loaded = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  require(loaded != nullptr, Fault::device, "cannot load {}: {}", path.string(), dlerror());
  void* const found = dlsym(loaded, function);
  require(found != nullptr, Fault::device, "{} belongs to another version of the program",
          path.string());
  return found;
}

}  // namespace capstan
