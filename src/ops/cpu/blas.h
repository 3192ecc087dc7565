#pragma once

#include <cstdint>
#include <string_view>

#include "ops/cpu/blas_library.h"

namespace capstan::cpu {

// The OpenBLAS of this process, which the first call loads. It stays. `recorded` is as for
// BlasLibrary, and counts in that call only: a run that resumes makes it before its first product.
// Cheap afterwards. Throws as BlasLibrary does, and Fault::does_not_fit if a limit of the process
// leaves too little memory for the library and the buffers of products.
const BlasLibrary& blas(std::string_view recorded = {});

// A row-major f32 matrix; `transposed` says how a product uses it.
struct MatrixF32 {
  const float* data = nullptr;
  int64_t row_stride = 0;
  bool transposed = false;
};

inline MatrixF32 transpose(MatrixF32 x) {
  x.transposed = !x.transposed;
  return x;
}

// c[m,n] = alpha a[m,k] b[k,n] + beta c, on the calling thread. Does not throw once blas() has
// returned.
inline void sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixF32& a,
                  const MatrixF32& b, float beta, float* c, int64_t c_stride) {
  blas().sgemm()(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
                 b.transposed ? CblasTrans : CblasNoTrans, static_cast<int>(m), static_cast<int>(n),
                 static_cast<int>(k), alpha, a.data, static_cast<int>(a.row_stride), b.data,
                 static_cast<int>(b.row_stride), beta, c, static_cast<int>(c_stride));
}

}  // namespace capstan::cpu
