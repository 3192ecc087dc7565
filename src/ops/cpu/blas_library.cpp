#include "ops/cpu/blas_library.h"

#include <dlfcn.h>
#include <omp.h>
#include <unistd.h>

#include <cstdlib>
#include <deque>
#include <mutex>
#include <sstream>
#include <vector>

#include "base/error.h"

namespace capstan::cpu {
namespace {

constexpr const char* kCoreType = "OPENBLAS_CORETYPE";

// While it exists, the environment has these entries, too. Only the pointer to the array of entries
// is exchanged, and no array is freed: other threads may read the environment meanwhile.
class EnvironmentWith {
 public:
  explicit EnvironmentWith(std::vector<std::string> entries)
      : before_(environ), added_(std::move(entries)) {
    static std::mutex mutex;
    static auto* const kept = new std::deque<std::vector<char*>>;
    const std::lock_guard lock(mutex);
    std::vector<char*>& all = kept->emplace_back();
    for (std::string& entry : added_) all.push_back(entry.data());  // the first of a name counts
    for (char** entry = before_; entry != nullptr && *entry != nullptr; ++entry)
      all.push_back(*entry);
    all.push_back(nullptr);
    environ = all.data();
  }
  EnvironmentWith(const EnvironmentWith&) = delete;
  EnvironmentWith& operator=(const EnvironmentWith&) = delete;
  ~EnvironmentWith() { environ = before_; }

 private:
  char** before_;
  std::vector<std::string> added_;
};

template <class Function>
Function* function_of(void* library, const char* name, const std::string& file) {
  void* const found = dlsym(library, name);
  require(found != nullptr, Fault::device, "{} is no OpenBLAS: it lacks {}", file, name);
  return reinterpret_cast<Function*>(found);
}

bool is_loaded(const std::string& file) {
  void* const there = dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  if (there == nullptr) return false;
  dlclose(there);
  return true;
}

}  // namespace

BlasLibrary::BlasLibrary(const std::string& file, const Vectors& vectors, std::string_view recorded)
    : file_(file) {
  try {
    chosen_by_ = choose(recorded, vectors);
    faster_ = faster_kernels(kernels_, vectors);
  } catch (...) {
    unload();
    throw;
  }
}

BlasLibrary::~BlasLibrary() {
  unload();
}

BlasLibrary::ChosenBy BlasLibrary::choose(std::string_view recorded, const Vectors& vectors) {
  const bool was_there = is_loaded(file_);
  load();
  if (was_there) return ChosenBy::process;
  if (std::getenv(kCoreType) != nullptr) return ChosenBy::user;
  const std::string own = kernels_, own_name = name();
  if (recorded == own_name) return ChosenBy::record;
  const std::string_view same_version(own_name.data(), own_name.size() - own.size());
  if (recorded.starts_with(same_version)) {
    const std::string_view wanted = recorded.substr(same_version.size());
    if (can_run(wanted, vectors) && reload(wanted)) return ChosenBy::record;
  }
  const std::string_view faster = faster_kernels(own, vectors);
  return !faster.empty() && reload(faster) ? ChosenBy::us : ChosenBy::library;
}

// Kernels that the library lacks are not worth an error: it has its own choice then.
bool BlasLibrary::reload(std::string_view kernels) {
  unload();
  load(kernels);
  if (kernels_ == kernels) return true;
  unload();
  load();
  return false;
}

void BlasLibrary::load(std::string_view kernels) {
  {
    std::vector<std::string> entries = {"OPENBLAS_NUM_THREADS=1"};
    if (!kernels.empty()) entries.push_back(fmt::format("{}={}", kCoreType, kernels));
    const EnvironmentWith environment(std::move(entries));
    handle_ = dlopen(file_.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (handle_ == nullptr)
    fail(Fault::device, "cannot load OpenBLAS, which multiplies matrices: {}", dlerror());
  sgemm_ = function_of<decltype(cblas_sgemm)>(handle_, "cblas_sgemm", file_);
  description_ = function_of<char*()>(handle_, "openblas_get_config", file_)();
  kernels_ = function_of<char*()>(handle_, "openblas_get_corename", file_)();
  // Again, for one that was loaded before. Where OpenBLAS uses OpenMP it sets our number as well.
  const int threads = omp_get_max_threads();
  function_of<void(int)>(handle_, "openblas_set_num_threads", file_)(1);
  omp_set_num_threads(threads);
}

void BlasLibrary::unload() {
  if (handle_ != nullptr) dlclose(handle_);
  handle_ = nullptr;
}

std::string BlasLibrary::name() const {
  std::istringstream words(description_);
  std::string library, version;
  words >> library >> version;
  return fmt::format("{} {} {}", library, version, kernels_);
}

}  // namespace capstan::cpu
