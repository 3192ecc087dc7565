#include <sys/mman.h>

#include <cstring>

#include "base/parallel.h"
#include "base/units.h"
#include "tensor/cuda/calls.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {
namespace {

[[noreturn]] void cannot_pin(int64_t bytes) {
  fail(
      Fault::does_not_fit,
      "does not fit: the system did not pin {} of host memory for the GPU. Batches wait there, the "
      "state of a paged optimizer is kept there, and the copy of the state that is saved while "
      "training goes on: free some memory, use an optimizer that is not paged, or set "
      "train.save_async: false",
      format_bytes(static_cast<double>(bytes)));
}

constexpr int64_t kPage = int64_t{2} << 20;
size_t whole_pages(int64_t bytes) {
  return static_cast<size_t>((bytes + kPage - 1) / kPage * kPage);
}

}  // namespace

// All cores touch the pages, large ones where the system has them, before the driver pins them: it
// would fetch them one after the other, at a few gigabytes per second.
std::byte* allocate_pinned(int64_t bytes) {
  const size_t size = whole_pages(bytes);
  void* const memory =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) cannot_pin(bytes);
  ::madvise(memory, size, MADV_HUGEPAGE);
  auto* const first = static_cast<std::byte*>(memory);
  parallel_for(static_cast<int64_t>(size), kPage, [&](int64_t begin, int64_t end) {
    std::memset(first + begin, 0, static_cast<size_t>(end - begin));
  });
  const cudaError_t status = cudaHostRegister(memory, size, cudaHostRegisterPortable);
  if (status != cudaSuccess) ::munmap(memory, size);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // reported here, so clear it for the next call
    cannot_pin(bytes);
  }
  check(status, "pin host memory");
  return first;
}

void release_pinned(std::byte* memory, int64_t bytes) {
  cudaHostUnregister(memory);
  ::munmap(memory, whole_pages(bytes));
}

}  // namespace capstan::cuda
