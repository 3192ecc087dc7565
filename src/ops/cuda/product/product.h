#pragma once

#include <cublasLt.h>

#include <vector>

#include "ops/cuda/product/wgmma_product.h"

namespace capstan::cuda {

// A product of two matrices as cuBLASLt takes it, and in part our kernel (wgmma_product.h):
// c = factor · a b + bias, or c += the same.
// Factors of one type; c of that type, or f32 from bf16. Or both in FP8, a as it is and b
// transposed, with columns in multiples of 16, at most one of them e5m2; then c is bf16 or f32, and
// the bias, which takes c in bf16, bf16. Sums of e4m3 alone stay in the tensor cores, which is
// faster; those with e5m2, of gradients, go into f32 after every few. Descriptors lie in the
// object: it costs the host next to nothing. Refers to the operands' memory.
class Product {
 public:
  Product(const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
          bool tf32, float factor = 1);
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  // By a method that it takes. The workspace has kGemmWorkspace bytes; our kernel needs none.
  void multiply(Context& context, const ProductMethod& method, std::byte* workspace) const;
  // False where it cannot begin.
  bool try_multiply(Context& context, const ProductMethod& method, std::byte* workspace) const;

  // The library's first proposals, `most` or fewer, those with sums in a fixed order alone. At
  // least one; throws Fault::device without.
  std::vector<ProductMethod> proposals(Context& context, int most) const;
  // Whether the method can be used for this product, within the workspace.
  bool takes(Context& context, const ProductMethod& method) const;

  const ProductKey& key() const { return key_; }
  ProductKey replacing_key() const;  // of the product that differs in that it does not add
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
  // Handles of cuBLASLt point to these, and are not const.
  mutable cublasLtMatmulDescOpaque_t product_{};
  mutable cublasLtMatrixLayoutOpaque_t c_layout_{}, a_layout_{}, b_layout_{};
};

// What every such product of this run is computed with, and of every later run that finds the same
// cache of products: the fastest of the library's first proposals and our kernel, measured when
// such a product is first met, or the first proposal where it is small or nothing can be kept. A
// product that adds takes what the one that replaces has, if that was met before.
// Measuring leaves c as it was where it is added to, and may write it where it is not.
//
// Shapes that differ by an eighth at the most, in equal strides, share what was measured, so that
// batches of many lengths are measured a few times only.
const ProductMethod& method_for(Context& context, const Product& product, std::byte* workspace);

}  // namespace capstan::cuda
