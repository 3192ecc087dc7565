// A library with OpenBLAS's names, built for the tests. Like an old one on a processor that came
// later, it takes its slowest kernels, or those that FAKE_OPENBLAS_KNOWS names. It is told others
// by OPENBLAS_CORETYPE when it is loaded, as the real one is. Kernels differ in the order of their
// sums, so also in the bits of their results.
#include <strings.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

#if defined(__aarch64__)
constexpr std::array kKernels = {"neoversen1", "armv8"};
#else
constexpr std::array kKernels = {"Prescott", "Haswell", "SkylakeX"};
#endif

const char* named(const char* variable) {
  const char* name = std::getenv(variable);
  for (const char* kernels : kKernels)
    if (name != nullptr && ::strcasecmp(name, kernels) == 0) return kernels;
  return nullptr;
}

const char* choose() {
  if (const char* told = named("OPENBLAS_CORETYPE")) return told;
  const char* own = named("FAKE_OPENBLAS_KNOWS");
  return own != nullptr ? own : kKernels[0];
}

std::string g_kernels = choose();
const char* const g_threads_at_start = std::getenv("OPENBLAS_NUM_THREADS");
std::string g_config = "OpenBLAS 0.0.1 FAKE " + g_kernels +
                       " THREADS=" + (g_threads_at_start != nullptr ? g_threads_at_start : "");

}  // namespace

extern "C" {

char* openblas_get_config() {
  return g_config.data();
}
char* openblas_get_corename() {
  return g_kernels.data();
}
void openblas_set_num_threads(int) {}

// Row-major. 112: transposed.
void cblas_sgemm(int, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                 const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  const bool backwards = g_kernels == kKernels[1] || g_kernels == kKernels.back();
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int step = 0; step < k; ++step) {
        const int l = backwards ? k - 1 - step : step;
        sum += (transpose_a == 112 ? a[l * lda + i] : a[i * lda + l]) *
               (transpose_b == 112 ? b[j * ldb + l] : b[l * ldb + j]);
      }
      float& out = c[i * ldc + j];
      out = alpha * sum + (beta == 0 ? 0 : beta * out);
    }
}

}  // extern "C"
