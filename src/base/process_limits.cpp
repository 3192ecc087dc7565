#include "base/process_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"

namespace capstan {
namespace {

void lower(ProcessLimits& limits, int resource, int64_t used) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur > INT64_MAX) return;
  const auto most = static_cast<int64_t>(limit.rlim_cur);
  const int64_t left = std::max<int64_t>(0, most - used);
  limits.memory = std::min(most, limits.memory.value_or(most));
  limits.memory_left = std::min(left, limits.memory_left.value_or(left));
}

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kBuffer =
    128 * kMiB;  // upper bound: OpenBLAS takes 32 or 128, depending on the processor
constexpr int64_t kLibrary = 64 * kMiB;  // upper bound: OpenBLAS itself, with its libraries
constexpr int64_t kStack = 8 * kMiB, kRest = 32 * kMiB;

void require_left(int64_t needed) {
  const ProcessLimits limits = process_limits();
  if (!limits.memory_left || *limits.memory_left >= needed) return;
  const auto bytes = [](int64_t n) { return format_bytes(static_cast<double>(n)); };
  fail(Fault::does_not_fit,
       "does not fit: this process is limited to {} (ulimit -v or -d) with {} left, but {} compute "
       "thread{}; raise the limit{}",
       bytes(*limits.memory), bytes(*limits.memory_left), num_threads(),
       num_threads() == 1 ? fmt::format(" needs {}", bytes(needed))
                          : fmt::format("s need {}", bytes(needed)),
       num_threads() == 1 ? "" : ", or set OMP_NUM_THREADS to fewer");
}

}  // namespace

ProcessLimits process_limits() {
  // Pages: address space, resident, shared, code, 0, data with the stack.
  int64_t all = 0, resident = 0, shared = 0, code = 0, zero = 0, data = 0;
  std::ifstream("/proc/self/statm") >> all >> resident >> shared >> code >> zero >> data;
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  ProcessLimits limits;
  lower(limits, RLIMIT_AS, all * page);
  lower(limits, RLIMIT_DATA, data * page);
  return limits;
}

int64_t needed_beside_plan() {
  return kRest + kLibrary + num_threads() * (kBuffer + kStack);
}

void require_room_to_compute() {
  require_left(needed_beside_plan());
}

void require_room_for_products() {
  require_left(kLibrary + num_threads() * kBuffer);
}

}  // namespace capstan
