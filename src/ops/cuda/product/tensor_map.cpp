#include "ops/cuda/product/tensor_map.h"

#include <cuda_runtime.h>

#include <array>

namespace capstan::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// The driver's function; null if missing. Through the runtime: the program is not linked with the
// driver library, so it starts without one.
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
  if (status != cudaSuccess) cudaGetLastError();  // reported here, so clear it for the next call
  const bool ok = status == cudaSuccess && how == cudaDriverEntryPointSuccess;
  return ok ? reinterpret_cast<Encode>(found) : nullptr;
}

bool fits(int64_t n) {
  return n > 0 && n <= int64_t{1} << 30;
}

// kRank extents of a tensor and of a box, innermost first, and one stride fewer.
template <size_t kRank>
bool encode(CUtensorMap& map, const Tensor& t, const std::array<int64_t, kRank>& sides,
            const std::array<int64_t, kRank - 1>& strides,
            const std::array<cuuint32_t, kRank>& box) {
  static const Encode driver = find_encode();
  if (driver == nullptr) return false;
  cuuint64_t extents[kRank], bytes[kRank - 1];
  cuuint32_t steps[kRank];
  for (size_t i = 0; i < kRank; ++i) {
    extents[i] = static_cast<cuuint64_t>(sides[i]);
    steps[i] = 1;
    if (i + 1 < kRank) bytes[i] = static_cast<cuuint64_t>(strides[i] * size_of(t.dtype()));
  }
  return driver(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, static_cast<cuuint32_t>(kRank), t.raw(),
                extents, bytes, box.data(), steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

bool can_map(const Tensor& t) {
  return t.rank() == 2 && t.dtype() == DType::bf16 && fits(t.dim(0)) && fits(t.dim(1)) &&
         fits(t.stride(0)) && t.dim(1) % 8 == 0 && t.stride(0) % 8 == 0 &&
         t.stride(0) >= t.dim(1) && reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
}

bool map_matrix(CUtensorMap& map, const Tensor& t, int rows) {
  return encode<2>(map, t, {t.dim(1), t.dim(0)}, {t.stride(0)},
                   {64, static_cast<cuuint32_t>(rows)});
}

bool map_heads(CUtensorMap& map, const Tensor& t) {
  const bool ok = t.rank() == 3 && t.dtype() == DType::bf16 && fits(t.dim(0)) && fits(t.dim(1)) &&
                  fits(t.dim(2)) && fits(t.stride(0)) && fits(t.stride(1)) && t.dim(2) % 8 == 0 &&
                  t.stride(0) % 8 == 0 && t.stride(1) % 8 == 0 &&
                  reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
  return ok &&
         encode<3>(map, t, {t.dim(2), t.dim(1), t.dim(0)}, {t.stride(1), t.stride(0)}, {64, 1, 64});
}

}  // namespace capstan::cuda
