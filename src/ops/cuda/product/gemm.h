#pragma once

#include "ops/cuda/product/factor.h"
#include "ops/thin_term.h"
#include "tensor/queue.h"

namespace capstan::cuda {

// Bytes of scratch for a product: cuBLASLt's workspace, an operand converted to f32 if the two
// types differ, and an f32 result if a narrow one is computed from f32. Never decreases for larger
// matrices.
inline int64_t gemm_scratch(const Factor& a, const Factor& b, const Tensor& c) {
  int64_t bytes = kGemmWorkspace;
  const DType a_type = a.matrix.dtype(), b_type = b.matrix.dtype();
  if (a_type != b_type)
    bytes += aligned_to_buffers((is_narrow(a_type) ? a.matrix : b.matrix).numel() * 4);
  if ((a_type == DType::f32 || b_type == DType::f32) && is_narrow(c.dtype()))
    bytes += aligned_to_buffers(c.numel() * 4);
  return bytes;
}

// c = factor · a b, or c += factor · a b; plus bias [columns of c] on every row if present. c may
// have a row stride. Factors are f32, or bf16 or f16, which do not meet; only Product (product.h)
// supports FP8. Sums are f32: narrow factors use tensor cores, f32 ones do not, unless the queue
// allows TF32.
void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
          const Tensor& scratch, float factor = 1);
// c = a b + bias + the terms: in one kernel if possible (wgmma_product.h), otherwise with scratch
// for the product and for each term.
void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias,
          const ThinTerms& terms, const Tensor& scratch);

// y[t,:] += b.
void add_bias(Queue& q, const Tensor& y_TO, const Tensor& b_O);
// db += Σ_t dy[t,:], in an order that depends only on the shape. The workspace has kGemmWorkspace
// bytes.
void bias_backward(Queue& q, const Tensor& db_O, const Tensor& dy_TO, std::byte* workspace);

}  // namespace capstan::cuda
