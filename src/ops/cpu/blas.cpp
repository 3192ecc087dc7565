#include "ops/cpu/blas.h"

#include "base/process_limits.h"

namespace capstan::cpu {

const BlasLibrary& blas(std::string_view recorded) {
  // Never unloaded: at the end of the process, threads may still multiply.
  static const BlasLibrary* const library = [&] {
    require_room_for_products();
    return new BlasLibrary(CAPSTAN_OPENBLAS, vectors_here(), recorded);
  }();
  return *library;
}

}  // namespace capstan::cpu
