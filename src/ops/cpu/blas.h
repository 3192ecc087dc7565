#pragma once

#include <cblas.h>

#include <cstdint>
#include <string>

namespace capstan::cpu {

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

// c[m,n] = alpha a[m,k] b[k,n] + beta c, on the calling thread.
inline void sgemm(int64_t m, int64_t n, int64_t k, float alpha, const MatrixF32& a,
                  const MatrixF32& b, float beta, float* c, int64_t c_stride) {
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans,
              b.transposed ? CblasTrans : CblasNoTrans, static_cast<int>(m), static_cast<int>(n),
              static_cast<int>(k), alpha, a.data, static_cast<int>(a.row_stride), b.data,
              static_cast<int>(b.row_stride), beta, c, static_cast<int>(c_stride));
}

// Keeps OpenBLAS from starting threads besides ours. Call before the first product; cheap. Throws
// Fault::does_not_fit if a limit of the process leaves too little memory for the buffers of
// products.
void use_one_blas_thread();

std::string blas_kernel();       // name and kernel of the library: "OpenBLAS 0.3.21 neoversen1"
const std::string& blas_name();  // its own description: "OpenBLAS 0.3.21 … neoversen1 …"

// Where OpenBLAS does not know the processor and took kernels without its vectors: the
// OPENBLAS_CORETYPE that has them, "SKYLAKEX" or "HASWELL". Else empty.
std::string faster_blas_kernels();

}  // namespace capstan::cpu
