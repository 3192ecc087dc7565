#pragma once

#include "ops/cuda/product/factor.h"
#include "ops/thin_term.h"
#include "tensor/cuda/context.h"

namespace capstan::cuda {

// c = factor · a b by a kernel of ours for Hopper's tensor cores (wgmma). All are bf16, a as it is,
// b as it is or transposed. Sums are f32, over the columns of a from the first to the last, and
// rounded once: a value depends on its row and its column alone, and two runs are bitwise equal. c
// may not alias the factors.

// Whether it can be had: the GPU has them, can_map (tensor_map.h) holds of all three, and a is not
// transposed.
bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a, const Factor& b);

// Whether it may be worth measuring: with 128 rows or fewer one block in two has nothing to do.
bool wgmma_product_suits(const Tensor& c);

// For what it takes; returns before it is done. Needs no workspace, and may be recorded in a graph.
cudaError_t wgmma_product(const Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          float factor);

// c = a bᵀ, b being transposed, and what the terms add: their sums go on where those of the product
// end, and all are rounded once. Terms begin and end with tiles of 256 columns, or where c ends.
bool wgmma_product_takes(const Context& context, const Tensor& c, const Factor& a, const Factor& b,
                         const ThinTerms& terms);
cudaError_t wgmma_product(const Context& context, const Tensor& c, const Factor& a, const Factor& b,
                          const ThinTerms& terms);

}  // namespace capstan::cuda
