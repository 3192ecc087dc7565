#pragma once

#include "ops/cuda/product/factor.h"
#include "ops/thin_term.h"
#include "tensor/cuda/context.h"

namespace capstan::cuda {

// c = factor · a b by our kernel for Hopper's tensor cores (wgmma). All are bf16, a plain, b plain
// or transposed. Sums are f32, over the columns of a from the first to the last, and rounded once:
// a value depends only on its row and its column, and two runs are bitwise equal. c must not alias
// the factors.

// Whether it is supported: the GPU has wgmma, can_map (tensor_map.h) holds for all three, and a is
// not transposed.
bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a, const Factor& b);

// Whether it is worth measuring: with 128 rows or fewer every second block has nothing to do.
bool wgmma_product_suits(const Tensor& c);

// For supported operands; returns before it is done. Needs no workspace, and may be recorded in a
// graph.
cudaError_t wgmma_product(Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          float factor);

// c = a bᵀ (b is transposed) + the terms: the sums continue where those of the product end, and are
// rounded once. Terms begin and end at tiles of 256 columns, or where c ends.
bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a, const Factor& b,
                         const ThinTerms& terms);
cudaError_t wgmma_product(Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          const ThinTerms& terms);

}  // namespace capstan::cuda
