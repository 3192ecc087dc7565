#pragma once

#include <cblas.h>

#include <cstdint>
#include <string>

namespace capstan::cpu {

// A matrix of f32 in rows; `transposed` says how a product sees it.
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

// OpenBLAS must not start threads of its own beside ours. Call before the first product; cheap.
// Throws Fault::does_not_fit where a limit of the process leaves no room for the buffers of
// products.
void use_one_blas_thread();

std::string blas_kernel();  // what its products are computed by: "OpenBLAS 0.3.21 neoversen1"
std::string blas_name();    // as it calls itself: "OpenBLAS 0.3.21 … neoversen1 …"

}  // namespace capstan::cpu
