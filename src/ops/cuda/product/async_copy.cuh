#pragma once

#include <cstdint>
#include <type_traits>

// Asynchronous copies into shared memory (cp.async), in groups. GPUs before Ampere do not have
// them: there a copy is done when copy_ahead returns.
namespace capstan::cuda {

__device__ inline uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// Copies kBytes (4, 8 or 16) between addresses aligned to as many. Writes zeros if not `there`:
// then `from` is not read, but must be an address of global memory.
template <int kBytes>
__device__ inline void copy_ahead(uint32_t to, const void* from, bool there = true) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if __CUDA_ARCH__ < 800
  using Words =
      std::conditional_t<kBytes == 16, uint4, std::conditional_t<kBytes == 8, uint2, uint32_t>>;
  Words words = {};
  if (there) words = *static_cast<const Words*>(from);
  *static_cast<Words*>(__cvta_shared_to_generic(to)) = words;
#else
  if constexpr (kBytes == 16)  // bypasses L1
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(kBytes),
                 "r"(there ? kBytes : 0)
                 : "memory");
#endif
}

// Ends a group of this thread's copies.
__device__ inline void end_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits for all but the last kLater of this thread's groups. For what others copy a barrier must
// follow.
template <int kLater>
__device__ void finish_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
#endif
}

}  // namespace capstan::cuda
