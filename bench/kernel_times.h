#pragma once

#include <string>

namespace capstan::bench {

// What a GPU's kernels take inside of a step, where each runs beside the caches, the clock and the
// power that the others leave it: by CUPTI, which the CUDA toolkit brings. Without it, or without
// CUDA, nothing is recorded.

// From now on all kernels are recorded, and what fills or copies memory like them. To be called
// before the first: graphs that were made earlier are not taken apart.
void record_kernels();
// Forgets what has run so far. The GPU must be idle, here and below.
void forget_kernels();
// By kernel, the longest first: milliseconds in all, calls, microseconds of one, and how long the
// GPU did nothing before one; the last line is the sum. Says so where nothing was recorded.
std::string kernel_table();

}  // namespace capstan::bench
