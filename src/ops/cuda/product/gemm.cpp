#include "ops/cuda/product/gemm.h"

#include "ops/cuda/elementwise.h"
#include "ops/cuda/product/product.h"
#include "tensor/cuda/check.h"

namespace capstan::cuda {
namespace {

// A factor in f32: itself, or converted in scratch.
Factor widened(Queue& q, const Factor& f, std::byte*& scratch) {
  if (f.matrix.dtype() == DType::f32) return f;
  const Tensor wide(scratch, DType::f32, f.matrix.shape());
  cuda::cast(q, wide, f.matrix);
  scratch += aligned_to_buffers(wide.nbytes());
  return {wide, f.transposed};
}

}  // namespace

void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias, bool add,
          const Tensor& scratch, float factor) {
  if (c.numel() == 0) return;
  auto* const workspace = static_cast<std::byte*>(scratch.raw());
  std::byte* rest = workspace + kGemmWorkspace;
  const bool both_narrow = a.matrix.dtype() == b.matrix.dtype() && is_narrow(a.matrix.dtype());
  const bool fused = bias && bias.dtype() == c.dtype() &&
                     (both_narrow || c.dtype() == DType::f32) &&
                     reinterpret_cast<uintptr_t>(bias.raw()) % 16 == 0;
  const auto multiply = [&](const Tensor& to, const Factor& x, const Factor& y,
                            const Tensor& plus) {
    const Product product(to, x, y, plus, add, q.tf32(), factor);
    Context& context = q.cuda();
    product.multiply(context, method_for(context, product, workspace), workspace);
  };
  const Tensor epilogue = fused ? bias : Tensor();
  if (both_narrow) {
    multiply(c, a, b, epilogue);
  } else {
    const Factor wide_a = widened(q, a, rest), wide_b = widened(q, b, rest);
    if (c.dtype() == DType::f32) {
      multiply(c, wide_a, wide_b, epilogue);
    } else {
      const Tensor wide_c(rest, DType::f32, c.shape());
      if (add) cuda::cast(q, wide_c, c);
      multiply(wide_c, wide_a, wide_b, {});
      cuda::cast(q, c, wide_c);
    }
  }
  if (bias && !fused) cuda::add_bias(q, c, bias);
}

void gemm(Queue& q, const Tensor& c, const Factor& a, const Factor& b, const Tensor& bias,
          const ThinTerms& terms, const Tensor& scratch) {
  if (!bias && terms.count() > 0 && wgmma_product_suits(c) &&
      wgmma_product_takes(q.cuda(), c, a, b, terms))
    return check(wgmma_product(q.cuda(), c, a, b, terms), "multiply");
  gemm(q, c, a, b, bias, false, scratch);
  for (const ThinTerm& t : terms)
    gemm(q, c.cols(t.first, t.w_OR.dim(0)), {t.x_TR}, {t.w_OR, true}, {}, true, scratch);
}

}  // namespace capstan::cuda
