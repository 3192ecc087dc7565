#pragma once

#include "ops/cuda/product/factor.h"
#include "ops/thin_term.h"
#include "tensor/queue.h"

namespace capstan::cuda {

// Bytes of scratch for a product: cuBLASLt's workspace, an operand widened to f32 where the two
// differ in type, a result in f32 where bf16 is to come from f32. Never less for larger matrices.
inline int64_t gemm_scratch(const Factor& a, const Factor& b, const Tensor& c) {
  int64_t bytes = kGemmWorkspace;
  const DType a_type = a.matrix.dtype(), b_type = b.matrix.dtype();
  if (a_type != b_type)
    bytes += aligned_to_buffers((a_type == DType::bf16 ? a.matrix : b.matrix).numel() * 4);
  if ((a_type == DType::f32 || b_type == DType::f32) && c.dtype() == DType::bf16)
    bytes += aligned_to_buffers(c.numel() * 4);
  return bytes;
}

// c = factor · a b, or c += factor · a b; plus bias [columns of c] on every row where it is
// present. c may have a row stride. Factors are f32 or bf16; those in FP8 are for Product
// (product.h) alone. Sums are f32: bf16 factors are multiplied in tensor cores, f32
// ones outside of them, or rounded to TF32 where the queue allows it.
void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
          const Tensor& scratch, float factor = 1);
// c = a b + bias, and what the terms add: in one kernel where it can (wgmma_product.h), with
// scratch for the product and for each of them.
void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias,
          const ThinTerms& terms, const Tensor& scratch);

// y[t,:] += b.
void add_bias(Queue& q, const Tensor& y_TO, const Tensor& b_O);
// db += Σ_t dy[t,:], in an order that follows from the shape. The workspace has kGemmWorkspace
// bytes.
void bias_backward(Queue& q, const Tensor& db_O, const Tensor& dy_TO, std::byte* workspace);

}  // namespace capstan::cuda
