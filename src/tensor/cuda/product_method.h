#pragma once

#include <cublasLt.h>

#include <bit>
#include <cstring>
#include <string_view>
#include <variant>

#include "tensor/product_cache.h"

namespace capstan::cuda {

// The method of a matrix product: an algorithm of cuBLASLt, or our kernel
// (ops/cuda/product/wgmma_product.h).
struct WgmmaKernel {};
using ProductMethod = std::variant<cublasLtMatmulAlgo_t, WgmmaKernel>;

// Identifies our kernel in the cache: change the number when its results change. It cannot be an
// algorithm of cuBLASLt: those begin with a small number, this with letters.
inline constexpr std::string_view kWgmmaName = "capstan wgmma 1";

// The stored form: cuBLASLt's own, or the name and zeros.
inline ProductAlgorithm kept(const ProductMethod& method) {
  if (const auto* algorithm = std::get_if<cublasLtMatmulAlgo_t>(&method))
    return std::bit_cast<ProductAlgorithm>(*algorithm);
  ProductAlgorithm name{};
  std::memcpy(name.data(), kWgmmaName.data(), kWgmmaName.size());
  return name;
}
inline ProductMethod method_of(const ProductAlgorithm& bytes) {
  if (bytes == kept(WgmmaKernel{})) return WgmmaKernel{};
  return std::bit_cast<cublasLtMatmulAlgo_t>(bytes);
}

}  // namespace capstan::cuda
