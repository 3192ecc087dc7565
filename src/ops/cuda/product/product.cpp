#include "ops/cuda/product/product.h"

#include <algorithm>
#include <array>
#include <bit>

#include "tensor/cuda/check.h"

namespace capstan::cuda {
namespace {

cudaDataType_t type_of(DType type) {
  if (type == DType::f16) return CUDA_R_16F;
  return type == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

cudaDataType_t type_of(const Factor& f) {
  if (!f.format) return type_of(f.matrix.dtype());
  return *f.format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

uint32_t alignment_of(const Tensor& t) {
  const auto zeros = std::countr_zero(reinterpret_cast<uintptr_t>(t.raw()));
  return uint32_t{1} << std::min(zeros, 8);
}

// A row-major matrix is the transpose of a column-major one, the only layout of cuBLAS.
void describe(cublasLtMatrixLayoutOpaque_t& layout, const Tensor& t, cudaDataType_t type) {
  check(cublasLtMatrixLayoutInit(&layout, type, static_cast<uint64_t>(t.dim(1)),
                                 static_cast<uint64_t>(t.dim(0)), t.stride(0)),
        "describe a matrix");
}

template <class T>
void set(cublasLtMatmulDescOpaque_t& product, cublasLtMatmulDescAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulDescSetAttribute(&product, attribute, &value, sizeof value),
        "describe a product");
}

template <class T>
void set(cublasLtMatmulPreferenceOpaque_t& preference,
         cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value),
        "choose a product");
}

constexpr int64_t kAdds = 1 << 4;  // in the flags of a key

ProductKey key_of(const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
                  bool tf32) {
  int64_t flags = 0;
  const auto mark = [&](bool so, int64_t flag) { flags |= so ? flag : 0; };
  mark(a.transposed, 1 << 6);
  mark(b.transposed, 1 << 5);
  mark(add, kAdds);
  mark(bool{bias}, 1 << 3);
  mark(is_narrow(a.matrix.dtype()), 1 << 2);
  mark(is_narrow(c.dtype()), 1 << 1);
  mark(tf32, 1);
  mark(a.matrix.dtype() == DType::f16, 1 << 11);
  int place = 7;
  for (const Factor* f : {&a, &b}) {
    if (f->format) flags |= int64_t{*f->format == Fp8::e4m3 ? 1 : 2} << place;
    place += 2;
  }
  const auto aligned = [](const Tensor& t) { return static_cast<int64_t>(alignment_of(t)); };
  return {{c.dim(0), c.dim(1), a.cols(), a.matrix.stride(0), b.matrix.stride(0), c.stride(0), flags,
           aligned(a.matrix) | aligned(b.matrix) << 16 | aligned(c) << 32}};
}

}  // namespace

Product::Product(const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
                 bool tf32, float factor)
    : c_(c), a_(a), b_(b), biased_(bias), add_(add), factor_(factor) {
  tf32 = tf32 && a.matrix.dtype() == DType::f32;
  key_ = key_of(c, a, b, bias, add, tf32);
  check(cublasLtMatmulDescInit(&product_, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                               CUDA_R_32F),
        "describe a product");
  // cᵀ = bᵀ aᵀ: the second factor comes first.
  set(product_, CUBLASLT_MATMUL_DESC_TRANSA, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(product_, CUBLASLT_MATMUL_DESC_TRANSB, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (bias) {
    set(product_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(product_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.raw());
  }
  if (a.format) {
    const bool fast = *a.format == Fp8::e4m3 && *b.format == Fp8::e4m3;
    set(product_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(fast));
    set(product_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b.inverse_scale);
    set(product_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a.inverse_scale);
  }
  describe(a_layout_, a.matrix, type_of(a));
  describe(b_layout_, b.matrix, type_of(b));
  describe(c_layout_, c, type_of(c.dtype()));
}

cublasStatus_t Product::by_library(Context& context, const cublasLtMatmulAlgo_t& algorithm,
                                   std::byte* workspace) const {
  const float beta = add_ ? 1 : 0;
  return cublasLtMatmul(context.blas(), &product_, &factor_, b_.matrix.raw(), &b_layout_,
                        a_.matrix.raw(), &a_layout_, &beta, c_.raw(), &c_layout_, c_.raw(),
                        &c_layout_, &algorithm, workspace, static_cast<size_t>(kGemmWorkspace),
                        context.stream());
}

void Product::multiply(Context& context, const ProductMethod& method, std::byte* workspace) const {
  if (const auto* algorithm = std::get_if<cublasLtMatmulAlgo_t>(&method))
    check(by_library(context, *algorithm, workspace), "multiply");
  else
    check(by_wgmma(context), "multiply");
}

bool Product::try_multiply(Context& context, const ProductMethod& method,
                           std::byte* workspace) const {
  if (const auto* algorithm = std::get_if<cublasLtMatmulAlgo_t>(&method))
    return by_library(context, *algorithm, workspace) == CUBLAS_STATUS_SUCCESS;
  return by_wgmma(context) == cudaSuccess;
}

std::vector<ProductMethod> Product::proposals(Context& context, int most) const {
  cublasLtMatmulPreferenceOpaque_t preference{};
  check(cublasLtMatmulPreferenceInit(&preference), "choose a product");
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kGemmWorkspace));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(b_.matrix));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(a_.matrix));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(c_));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(c_));
  // Split sums are reduced in a fixed order: two runs are bitwise equal.
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  check(
      cublasLtMatmulAlgoGetHeuristic(context.blas(), &product_, &b_layout_, &a_layout_, &c_layout_,
                                     &c_layout_, &preference, most, found.data(), &count),
      "choose a product");
  std::vector<ProductMethod> algorithms;
  for (int i = 0; i < count; ++i) {
    const auto& result = found[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.emplace_back(result.algo);
  }
  require(!algorithms.empty(), Fault::device, "GPU: cuBLASLt has no product {} by {} with {} sums",
          c_.dim(0), c_.dim(1), a_.cols());
  return algorithms;
}

bool Product::takes(Context& context, const ProductMethod& method) const {
  const auto* const algorithm = std::get_if<cublasLtMatmulAlgo_t>(&method);
  if (algorithm == nullptr) return !biased_ && !add_ && wgmma_product_takes(context, c_, a_, b_);
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(context.blas(), &product_, &b_layout_, &a_layout_, &c_layout_,
                                 &c_layout_, algorithm, &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<size_t>(kGemmWorkspace);
}

ProductKey Product::replacing_key() const {
  ProductKey key = key_;
  key.fields[6] &= ~kAdds;
  return key;
}

double Product::flops() const {
  return 2 * static_cast<double>(c_.numel()) * static_cast<double>(a_.cols());
}

double Product::bytes() const {
  return static_cast<double>(a_.matrix.nbytes() + b_.matrix.nbytes() + c_.nbytes());
}

}  // namespace capstan::cuda
