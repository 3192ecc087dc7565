#include "ops/cpu/blas_kernels.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <array>

namespace capstan::cpu {
namespace {

enum class Needs { nothing, avx, avx2, avx512, armv82 };

struct Kernels {
  std::string_view name;
  Needs needs;
};

// Those that a processor with these vectors runs whoever made it; the others OpenBLAS chooses by
// itself or not at all.
#if defined(__aarch64__)
constexpr std::array kKernels = {
    Kernels{"armv8", Needs::nothing},     Kernels{"cortexa53", Needs::nothing},
    Kernels{"cortexa57", Needs::nothing}, Kernels{"cortexa72", Needs::nothing},
    Kernels{"cortexa73", Needs::nothing}, Kernels{"neoversen1", Needs::armv82},
};
#else
// A processor with AVX has all of SSE.
constexpr std::array kKernels = {
    Kernels{"Prescott", Needs::nothing}, Kernels{"Core2", Needs::avx},
    Kernels{"Penryn", Needs::avx},       Kernels{"Dunnington", Needs::avx},
    Kernels{"Nehalem", Needs::avx},      Kernels{"Sandybridge", Needs::avx},
    Kernels{"Haswell", Needs::avx2},     Kernels{"Zen", Needs::avx2},
    Kernels{"SkylakeX", Needs::avx512},
};
#endif

// With AVX2 or more.
constexpr std::array<std::string_view, 6> kWide = {"Haswell",  "Zen",        "Excavator",
                                                   "SkylakeX", "Cooperlake", "SapphireRapids"};

}  // namespace

Vectors vectors_here() {
  Vectors v;
#if defined(__x86_64__)
  __builtin_cpu_init();
  v.avx = __builtin_cpu_supports("avx") != 0;
  v.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  v.avx512 = v.avx2 && __builtin_cpu_supports("avx512f") != 0 &&
             __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
             __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
#elif defined(__aarch64__)
  constexpr unsigned long kNeeded =
      HWCAP_ATOMICS | HWCAP_CRC32 | HWCAP_ASIMDRDM | HWCAP_DCPOP | HWCAP_ASIMDHP | HWCAP_ASIMDDP;
  v.armv82 = (getauxval(AT_HWCAP) & kNeeded) == kNeeded;
#endif
  return v;
}

std::string_view faster_kernels(std::string_view chosen, const Vectors& vectors) {
  for (const std::string_view wide : kWide)
    if (chosen == wide) return "";
  return vectors.avx512 ? "SkylakeX" : vectors.avx2 ? "Haswell" : "";
}

bool can_run(std::string_view kernels, const Vectors& vectors) {
  for (const Kernels& k : kKernels) {
    if (k.name != kernels) continue;
    switch (k.needs) {
      case Needs::nothing: return true;
      case Needs::avx: return vectors.avx;
      case Needs::avx2: return vectors.avx2;
      case Needs::avx512: return vectors.avx512;
      case Needs::armv82: return vectors.armv82;
    }
  }
  return false;
}

}  // namespace capstan::cpu
