#include "ops/cpu/blas.h"

extern "C" void openblas_set_num_threads(int threads);

namespace capstan::cpu {

void use_one_blas_thread() {
  static const bool done = (openblas_set_num_threads(1), true);
  static_cast<void>(done);
}

}  // namespace capstan::cpu
