#include <cstring>

#include "base/parallel.h"
#include "base/units.h"
#include "tensor/cuda/calls.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {

std::byte* allocate_pinned(int64_t bytes) {
  void* memory = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&memory, static_cast<size_t>(bytes), cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // reported here, so clear it for the next call
    fail(Fault::does_not_fit,
         "does not fit: the system did not pin {} of host memory for the GPU. Batches wait there, "
         "the "
         "state of a paged optimizer is kept there, and the copy of the state that is saved while "
         "training goes on: free some memory, use an optimizer that is not paged, or set "
         "train.save_async: false",
         format_bytes(static_cast<double>(bytes)));
  }
  check(status, "pin host memory");
  auto* const first = static_cast<std::byte*>(memory);
  parallel_for(bytes, int64_t{1} << 22, [&](int64_t begin, int64_t end) {
    std::memset(first + begin, 0, static_cast<size_t>(end - begin));
  });
  return first;
}

void release_pinned(std::byte* memory) {
  cudaFreeHost(memory);
}

}  // namespace capstan::cuda
