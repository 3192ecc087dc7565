#include "ops/cpu/blas.h"

#include <cstdlib>
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

std::string faster_blas_kernels() {
#ifdef __x86_64__
  // Of those that it can choose from, the ones with AVX2 or more.
  constexpr std::string_view kWide[] = {"Haswell",  "Zen",        "Excavator",
                                        "SkylakeX", "Cooperlake", "SapphireRapids"};
  const std::string_view chosen = openblas_get_corename();
  for (const std::string_view wide : kWide)
    if (chosen == wide) return "";
  if (std::getenv("OPENBLAS_CORETYPE") != nullptr) return "";  // by the user
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512cd"))
    return "SKYLAKEX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "HASWELL";
#endif
  return "";
}

}  // namespace capstan::cpu
