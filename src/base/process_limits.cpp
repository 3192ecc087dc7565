#include "base/process_limits.h"

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

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

// More than the user can have meant; OpenMP and OpenBLAS end the process somewhere above.
void require_sane_threads() {
  const int most = std::max(kMostThreads, 4 * omp_get_num_procs()), threads = num_threads();
  const char* const told = std::getenv("OMP_NUM_THREADS");
  require(threads >= 1 && threads <= most, Fault::usage,
          "OMP_NUM_THREADS: {} threads requested; expected 1 to {} (this machine has {})",
          told != nullptr ? told : std::to_string(threads), most,
          count(omp_get_num_procs(), "core"));
}

// Threads that exist together until this ends. They are small: memory is another question.
class Threads {
 public:
  // Returns 0, or the error of the one that did not start.
  int add(int n) {
    constexpr size_t kStackSize = 128 << 10;
    pthread_attr_t small;
    ::pthread_attr_init(&small);
    ::pthread_attr_setstacksize(&small, kStackSize);
    int error = 0;
    for (int i = 0; i < n && error == 0; ++i) {
      pthread_t thread{};
      error = ::pthread_create(&thread, &small, wait, this);
      if (error == 0) started_.push_back(thread);
    }
    ::pthread_attr_destroy(&small);
    return error;
  }
  ~Threads() {
    {
      const std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    for (const pthread_t thread : started_) ::pthread_join(thread, nullptr);
  }

 private:
  static void* wait(void* self) {
    auto& threads = *static_cast<Threads*>(self);
    std::unique_lock lock(threads.mutex_);
    threads.changed_.wait(lock, [&] { return threads.done_; });
    return nullptr;
  }

  std::vector<pthread_t> started_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

// OpenMP ends the process if a thread of its own does not start.
void require_threads() {
  constexpr int kOthers = 4;  // that save, show progress, talk to other ranks
  Threads threads;
  const int error = threads.add(num_threads() - 1 + kOthers);
  require(error == 0, Fault::does_not_fit,
          "does not fit: {} cannot start: {}; raise the limit of processes (ulimit -u, or that of "
          "the container){}",
          count(num_threads() + kOthers, "thread"), std::strerror(error),
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
  require_sane_threads();
  require_left(needed_beside_plan());
  require_threads();
}

void require_room_for_products() {
  require_left(kLibrary + num_threads() * kBuffer);
}

}  // namespace capstan
