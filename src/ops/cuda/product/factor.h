#pragma once

#include <optional>

#include "base/fp8.h"
#include "tensor/tensor.h"

namespace capstan::cuda {

// One factor of a product: a row-major matrix, or the transpose of one.
struct Factor {
  Tensor matrix;
  bool transposed = false;
  // For codes (u8) in a format, each representing code * *inverse_scale, which is on the device.
  std::optional<Fp8> format = std::nullopt;
  const float* inverse_scale = nullptr;

  int64_t rows() const { return matrix.dim(transposed ? 1 : 0); }
  int64_t cols() const { return matrix.dim(transposed ? 0 : 1); }
};

inline constexpr int64_t kGemmWorkspace = int64_t{32} << 20;  // what cuBLAS recommends for Hopper

}  // namespace capstan::cuda
