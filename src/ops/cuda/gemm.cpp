#include "ops/cuda/gemm.h"

#include <algorithm>
#include <bit>

#include "ops/cuda/elementwise.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/context.h"

namespace capstan::cuda {
namespace {

cudaDataType_t type_of(DType type) {
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

uint32_t alignment_of(const void* address) {
  const auto zeros = std::countr_zero(reinterpret_cast<uintptr_t>(address));
  return uint32_t{1} << std::min(zeros, 8);
}

// Owners of cuBLASLt's descriptors.
struct Layout {
  cublasLtMatrixLayout_t handle = nullptr;
  // A row-major matrix is the transpose of a column-major one, which is all that cuBLAS knows.
  Layout(DType type, int64_t rows, int64_t cols, int64_t stride) {
    check(cublasLtMatrixLayoutCreate(&handle, type_of(type), static_cast<uint64_t>(cols),
                                     static_cast<uint64_t>(rows), stride),
          "describe a matrix");
  }
  explicit Layout(const Tensor& t) : Layout(t.dtype(), t.dim(0), t.dim(1), t.stride(0)) {}
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() { cublasLtMatrixLayoutDestroy(handle); }
};

struct Product {
  cublasLtMatmulDesc_t handle = nullptr;
  Product() {
    check(cublasLtMatmulDescCreate(&handle, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describe a product");
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;
  ~Product() { cublasLtMatmulDescDestroy(handle); }
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(handle, attribute, &value, sizeof value),
          "describe a product");
  }
};

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { check(cublasLtMatmulPreferenceCreate(&handle), "choose a product"); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  ~Preference() { cublasLtMatmulPreferenceDestroy(handle); }
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check(cublasLtMatmulPreferenceSetAttribute(handle, attribute, &value, sizeof value),
          "choose a product");
  }
};

GemmKey key_of(const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add) {
  return {{c.dim(0), c.dim(1), a.cols(), a.matrix.stride(0), b.matrix.stride(0), c.stride(0),
           static_cast<int64_t>(a.transposed) | static_cast<int64_t>(b.transposed) << 1 |
               static_cast<int64_t>(add) << 2 | static_cast<int64_t>(bool{bias}) << 3 |
               static_cast<int64_t>(a.matrix.dtype() == DType::bf16) << 4 |
               static_cast<int64_t>(c.dtype() == DType::bf16) << 5,
           static_cast<int64_t>(alignment_of(a.matrix.raw())) |
               static_cast<int64_t>(alignment_of(b.matrix.raw())) << 16 |
               static_cast<int64_t>(alignment_of(c.raw())) << 32}};
}

// Factors of one type; c of that type, or f32 from bf16.
void multiply(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias,
              bool add, std::byte* workspace) {
  Product product;
  // cᵀ = bᵀ aᵀ: the second factor comes first.
  product.set(CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  product.set(CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias) {
    product.set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    product.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.raw());
  }
  const Layout a_layout(a.matrix), b_layout(b.matrix), c_layout(c);
  Context& context = q.cuda();
  cublasLtMatmulAlgo_t* algorithm = context.find_algorithm(key_of(c, a, b, bias, add));
  if (algorithm == nullptr) {
    Preference preference;
    preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kGemmWorkspace));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(b.matrix.raw()));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(a.matrix.raw()));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c.raw()));
    preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(c.raw()));
    // Sums of split products in a fixed order: two runs are bitwise equal.
    preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                   uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    cublasLtMatmulHeuristicResult_t found{};
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(context.blas(), product.handle, b_layout.handle,
                                         a_layout.handle, c_layout.handle, c_layout.handle,
                                         preference.handle, 1, &found, &count),
          "choose a product");
    require(count > 0, Fault::device, "GPU: cuBLASLt has no product {} by {} with {} sums",
            c.dim(0), c.dim(1), a.cols());
    algorithm = context.keep_algorithm(key_of(c, a, b, bias, add), found.algo);
  }
  const float one = 1, beta = add ? 1 : 0;
  check(cublasLtMatmul(context.blas(), product.handle, &one, b.matrix.raw(), b_layout.handle,
                       a.matrix.raw(), a_layout.handle, &beta, c.raw(), c_layout.handle, c.raw(),
                       c_layout.handle, algorithm, workspace, static_cast<size_t>(kGemmWorkspace),
                       context.stream()),
        "multiply");
}

// A factor in f32, in scratch, if it is not already.
Factor widened(Queue& q, const Factor& f, std::byte*& scratch) {
  if (f.matrix.dtype() == DType::f32) return f;
  const Tensor wide(scratch, DType::f32, f.matrix.shape());
  cuda::cast(q, wide, f.matrix);
  scratch += aligned_to_buffers(wide.nbytes());
  return {wide, f.transposed};
}

}  // namespace

void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
          const Tensor& scratch) {
  if (c.numel() == 0) return;
  auto* const workspace = static_cast<std::byte*>(scratch.raw());
  std::byte* rest = workspace + kGemmWorkspace;
  const bool both_narrow = a.matrix.dtype() == DType::bf16 && b.matrix.dtype() == DType::bf16;
  const bool fused = bias && bias.dtype() == c.dtype() &&
                     (both_narrow || c.dtype() == DType::f32) &&
                     reinterpret_cast<uintptr_t>(bias.raw()) % 16 == 0;
  const Tensor epilogue = fused ? bias : Tensor();
  if (both_narrow) {
    multiply(q, c, a, b, epilogue, add, workspace);
  } else {
    const Factor wide_a = widened(q, a, rest), wide_b = widened(q, b, rest);
    if (c.dtype() == DType::f32) {
      multiply(q, c, wide_a, wide_b, epilogue, add, workspace);
    } else {
      const Tensor wide_c(rest, DType::f32, c.shape());
      if (add) cuda::cast(q, wide_c, c);
      multiply(q, wide_c, wide_a, wide_b, {}, add, workspace);
      cuda::cast(q, c, wide_c);
    }
  }
  if (bias && !fused) cuda::add_bias(q, c, bias);
}

}  // namespace capstan::cuda
