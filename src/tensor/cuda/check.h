#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include "base/error.h"

namespace capstan::cuda {

// Throws Fault::device, naming the operation and CUDA's reason.
inline void check(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) [[likely]]
    return;
  fail(Fault::device, "GPU: cannot {}: {} ({})", doing, cudaGetErrorString(status),
       cudaGetErrorName(status));
}

inline void check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  fail(Fault::device, "GPU: cannot {}: {}", doing, cublasLtGetStatusString(status));
}

// After a launch: the kernel's own errors appear later, at the next wait.
inline void launched(const char* kernel) {
  check(cudaPeekAtLastError(), kernel);
}

}  // namespace capstan::cuda
