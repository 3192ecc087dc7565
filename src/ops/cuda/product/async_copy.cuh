#pragma once

#include <cstdint>

// Asynchronous copies into shared memory (cp.async), in groups.
namespace capstan::cuda {

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Copies kBytes (4, 8 or 16) between addresses aligned to as many. Writes zeros if not `there`:
// then `from` is not read, but must be an address of global memory.
template <int kBytes>
__device__ inline void copy_ahead(uint32_t to, const void* from, bool there = true) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
  if constexpr (kBytes == 16)  // bypasses L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(there ? kBytes : 0)
                 : "memory");
}

// Ends a group of this thread's copies.
__device__ inline void end_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all but the last kLater of this thread's groups. For what others copy a barrier must
// follow.
template <int kLater>
__device__ void finish_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

}  // namespace capstan::cuda
