#include "ops/cuda/tensor_map.h"

#include <cuda_runtime.h>

namespace capstan::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function; null where it has none. By way of the runtime: the program is not linked
// with the driver's library, so that it starts where there is none.
Encode find_encode() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult how{};
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                              12000, cudaEnableDefault, &how);
#else
  const cudaError_t status =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &how);
#endif
  if (status != cudaSuccess) cudaGetLastError();  // it is told here, and not by the next call
  const bool ok = status == cudaSuccess && how == cudaDriverEntryPointSuccess;
  return ok ? reinterpret_cast<Encode>(found) : nullptr;
}

}  // namespace

bool can_map(const Tensor& t) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto fits = [](int64_t n) { return n > 0 && n <= kMost; };
  return t.rank() == 2 && t.dtype() == DType::bf16 && fits(t.dim(0)) && fits(t.dim(1)) &&
         fits(t.stride(0)) && t.dim(1) % 8 == 0 && t.stride(0) % 8 == 0 &&
         t.stride(0) >= t.dim(1) && reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
}

bool map_matrix(CUtensorMap& map, const Tensor& t, int rows) {
  static const Encode encode = find_encode();
  if (encode == nullptr) return false;
  const cuuint64_t sides[2] = {static_cast<cuuint64_t>(t.dim(1)),
                               static_cast<cuuint64_t>(t.dim(0))};
  const cuuint64_t stride[1] = {static_cast<cuuint64_t>(t.stride(0) * size_of(t.dtype()))};
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(rows)}, steps[2] = {1, 1};
  return encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, t.raw(), sides, stride, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace capstan::cuda
