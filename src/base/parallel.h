#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace capstan {

// Threads that parallel_for may use: OMP_NUM_THREADS, else the cores available to this process.
inline int num_threads() {
  return omp_get_max_threads();
}

// Calls body(begin, end) on consecutive ranges that together cover [0, n), one per thread, and
// returns when all are done. Ranges except the last are multiples of `grain`; less than one `grain`
// of work runs on the calling thread. The split depends only on n, grain and the thread count. body
// must not throw.
template <class Body>
void parallel_for(int64_t n, int64_t grain, const Body& body) {
  const int64_t grains = (n + grain - 1) / grain;
  if (grains <= 1 || num_threads() == 1) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
  // Always the whole team, even if some threads have nothing to do: GCC's OpenMP allocates heap
  // memory whenever the team size changes.
#pragma omp parallel
  {
    const int64_t t = omp_get_thread_num();
    const int64_t parts = std::min<int64_t>(omp_get_num_threads(), grains);
    const int64_t begin = grains * t / parts * grain;
    const int64_t end = std::min(n, grains * (t + 1) / parts * grain);
    if (t < parts && begin < end) body(begin, end);
  }
}

// Calls body(i, thread) for each i in [0, n), assigning them dynamically as threads become free:
// for tasks of unequal size. `thread` < num_threads() identifies a workspace. body must not throw.
template <class Body>
void parallel_tasks(int64_t n, const Body& body) {
  if (n == 1 || num_threads() == 1) {
    for (int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < n; ++i) body(i, omp_get_thread_num());
}

}  // namespace capstan
