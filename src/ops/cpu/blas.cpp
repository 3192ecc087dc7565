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

std::string blas_kernel() {
  std::istringstream config(openblas_get_config());
  std::string library, version;
  config >> library >> version;
  return library + " " + version + " " + openblas_get_corename();
}

std::string blas_name() {
  return openblas_get_config();
}

}  // namespace capstan::cpu
