#pragma once

#include <cstdint>
#include <optional>

namespace capstan {

// The limits that a shell or a batch system sets for this process: the smaller of its address space
// (`ulimit -v`) and its data (`ulimit -d`), in bytes. Fields without a value are not limited.
struct ProcessLimits {
  std::optional<int64_t> memory;
  std::optional<int64_t> memory_left;  // never below 0
};
ProcessLimits process_limits();

// Memory of a process besides its plan: OpenBLAS, which is loaded before the first product; for
// each thread its stack and the buffer that OpenBLAS allocates at that product; and some for files
// and lists.
int64_t needed_beside_plan();

// Throws Fault::does_not_fit unless this much is left, and as many threads can be started as
// compute (and some for other work); Fault::usage if OMP_NUM_THREADS asks for more than
// kMostThreads and four for each core.
inline constexpr int kMostThreads = 1024;
void require_room_to_compute();
// The same for OpenBLAS and its buffers alone. Without memory for them OpenBLAS does not fail: it
// retries for ever.
void require_room_for_products();

}  // namespace capstan
