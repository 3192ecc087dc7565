#pragma once

#include <cblas.h>

#include <string>
#include <string_view>

#include "ops/cpu/blas_kernels.h"

namespace capstan::cpu {

// OpenBLAS, loaded into this process. It chooses its kernels, and starts its threads, when it is
// loaded, and only the environment can tell it which and how many. So the program is not linked
// with it, but loads it, with the environment changed until it is there.
class BlasLibrary {
 public:
  enum class ChosenBy {
    library,  // by the model of the processor
    us,       // faster_kernels: it does not know the processor
    record,   // the kernels with which a run began
    user,     // OPENBLAS_CORETYPE
    process,  // was loaded before, by other code of this process; nothing is changed
  };

  // Loads it from a file, which is looked for as for any library, without threads of its own.
  //
  // `recorded` is a name() or empty. Those kernels are taken if the library has this version and
  // the processor runs them; else faster_kernels of its own choice. OPENBLAS_CORETYPE, if the user
  // has set it, comes before both. The same processor, library and `recorded` give the same
  // kernels. Throws Fault::device if there is no such library.
  BlasLibrary(const std::string& file, const Vectors& vectors, std::string_view recorded = {});
  BlasLibrary(const BlasLibrary&) = delete;
  BlasLibrary& operator=(const BlasLibrary&) = delete;
  ~BlasLibrary();

  decltype(&cblas_sgemm) sgemm() const { return sgemm_; }

  std::string name() const;                                        // "OpenBLAS 0.3.21 SkylakeX"
  const std::string& kernels() const { return kernels_; }          // "SkylakeX"
  const std::string& description() const { return description_; }  // "OpenBLAS 0.3.21 … MAX_…"
  ChosenBy chosen_by() const { return chosen_by_; }
  // faster_kernels of those that it has. Empty if it has them because we chose.
  const std::string& faster() const { return faster_; }

 private:
  void load(std::string_view kernels = {});
  bool reload(std::string_view kernels);
  void unload();
  ChosenBy choose(std::string_view recorded, const Vectors& vectors);

  std::string file_;
  void* handle_ = nullptr;
  decltype(&cblas_sgemm) sgemm_ = nullptr;
  std::string description_, kernels_, faster_;
  ChosenBy chosen_by_ = ChosenBy::library;
};

}  // namespace capstan::cpu
