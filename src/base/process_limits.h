#pragma once

#include <cstdint>
#include <optional>

namespace capstan {

// What the shell or a batch system allows this process: the lesser of its address space
// (`ulimit -v`) and its data (`ulimit -d`), in bytes. What has no value is not limited.
struct ProcessLimits {
  std::optional<int64_t> memory;
  std::optional<int64_t> memory_left;  // never below 0
};
ProcessLimits process_limits();

// What a process needs of these beside its plan: for each thread its stack and the buffer that
// OpenBLAS takes at the first product, and some for files and lists.
int64_t needed_beside_plan();

// Throws Fault::does_not_fit unless that much is left.
void require_room_to_compute();
// The same of the buffers alone. OpenBLAS does not fail where it gets none: it asks for ever.
void require_room_for_products();

}  // namespace capstan
