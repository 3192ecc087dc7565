#pragma once

#include "ops/quantize.h"
#include "tensor/queue.h"

namespace capstan::cpu {

// A row-major matrix of f32, bf16 or f16, or a quantized one, used directly or transposed.
struct Matrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  int64_t row_stride = 0;  // between rows as stored
  bool transposed = false;
  const QuantizedMatrix* quantized = nullptr;  // then `data` is absent and `dtype` u8
};

inline Matrix matrix(const Tensor& t, bool transposed = false) {
  return {t.raw(), t.dtype(), t.stride(0), transposed, nullptr};
}
inline Matrix matrix(const QuantizedMatrix& m, bool transposed = false) {
  return {nullptr, DType::u8, m.shape[1], transposed, &m};
}

// Bytes of scratch that gemm needs for these types: one set of f32 panels per thread if an operand
// or the result is narrow, or B is quantized (u8), else none.
int64_t gemm_scratch(DType a, DType b, DType c);

// C[m,n] = factor A[m,k] B[k,n] (+ C if `add`) (+ bias[n] if present). Row-major; C has `c_stride`
// between rows. B may be quantized, A not.
//
// OpenBLAS computes, one thread per tile of C; narrow operands are converted to f32 in blocks that
// stay in cache, sums are f32, and C is rounded once. `scratch` has gemm_scratch(…) bytes. The
// result depends only on the operands and the number of threads.
void gemm(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, void* c, DType c_type,
          int64_t c_stride, bool add, void* scratch, const Tensor& bias = {}, float factor = 1);

}  // namespace capstan::cpu
