#include "ops/cpu/blas.h"

#include <sstream>
#include "base/process_limits.h"

extern "C" {
void openblas_set_num_threads(int threads);
char* openblas_get_config();
char* openblas_get_corename();
}

namespace capstan::cpu {

void use_one_blas_thread() {
  static const bool done = (require_room_for_products(), openblas_set_num_threads(1), true);
  static_cast<void>(done);
}

// OpenBLAS writes it into one buffer, whichever thread asks.
const std::string& blas_name() {
  static const std::string name = openblas_get_config();
  return name;
}

std::string blas_kernel() {
  std::istringstream config(blas_name());
  std::string library, version;
  config >> library >> version;
  return library + " " + version + " " + openblas_get_corename();
}

}  // namespace capstan::cpu
