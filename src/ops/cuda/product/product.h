#pragma once

#include <cublasLt.h>

#include <vector>

#include "ops/cuda/product/wgmma_product.h"

namespace capstan::cuda {

// A product of two matrices for cuBLASLt, and in some cases our kernel (wgmma_product.h): c =
// factor · a b + bias, or c += the same. Factors have one type; c has that type, or f32.
// Or both are FP8, a plain and b transposed, with columns in multiples of 16, at most one of them
// e5m2; then c is bf16 or f32, and a bias is bf16 and needs c in bf16. Sums of e4m3 factors stay in
// the tensor cores, which is faster; those with e5m2 (gradients) are promoted to f32 at intervals.
// Descriptors are part of the object: it costs the host next to nothing. Refers to the operands'
// memory.
class Product {
 public:
  Product(const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
          bool tf32, float factor = 1);
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // Runs a method that it supports. The workspace has kGemmWorkspace bytes; our kernel needs none.
  void multiply(Context& context, const ProductMethod& method, std::byte* workspace) const;
  // False if it cannot be launched.
  bool try_multiply(Context& context, const ProductMethod& method, std::byte* workspace) const;

  // The library's first heuristics, at most `most`, only those with a fixed summation order. At
  // least one; throws Fault::device otherwise.
  std::vector<ProductMethod> proposals(Context& context, int most) const;
  // Whether the method supports this product, within the workspace.
  bool takes(Context& context, const ProductMethod& method) const;

  const ProductKey& key() const { return key_; }
  ProductKey replacing_key() const;  // of the same product without adding
  const Tensor& result() const { return c_; }
  bool adds() const { return add_; }
  double flops() const;
  double bytes() const;  // of the three matrices

 private:
  cublasStatus_t by_library(Context& context, const cublasLtMatmulAlgo_t& algorithm,
                            std::byte* workspace) const;
  cudaError_t by_wgmma(Context& context) const {
    return wgmma_product(context, c_, a_, b_, factor_);
  }

  Tensor c_;
  Factor a_, b_;
  bool biased_, add_;
  float factor_;
  ProductKey key_;
  // Handles of cuBLASLt point to these and are not const.
  mutable cublasLtMatmulDescOpaque_t product_{};
  mutable cublasLtMatrixLayoutOpaque_t c_layout_{}, a_layout_{}, b_layout_{};
};

// The method of every such product of this run, and of every later run with the same product cache:
// the fastest of the library's first heuristics and our kernel, measured on the first such product,
// or the first heuristic if it is small or nothing can be stored. A product that adds uses the
// method of the one that replaces, if that came before. Measuring preserves c if it is added to,
// and may overwrite it otherwise.
//
// Shapes that differ by at most an eighth, with equal strides, share one measurement, so that
// batches of many lengths are measured only a few times.
const ProductMethod& method_for(Context& context, const Product& product, std::byte* workspace);

}  // namespace capstan::cuda
