// What the front ends call for cuda, in a program without it. No queue is on cuda there.
#include "base/error.h"
#include "ops/cuda/attention/attention.h"
#include "ops/cuda/elementwise.h"
#include "ops/cuda/embedding.h"
#include "ops/cuda/head_loss.h"
#include "ops/cuda/optimizer.h"
#include "ops/cuda/product/dropped_linear.h"
#include "ops/cuda/product/gemm.h"
#include "ops/cuda/product/linear_fp8.h"
#include "ops/cuda/quantize.h"
#include "ops/cuda/rmsnorm.h"
#include "ops/cuda/rope.h"
#include "ops/cuda/sum_slices.h"
#include "ops/cuda/swiglu.h"

namespace capstan::cuda {
namespace {

[[noreturn]] void not_built() {
  fail(Fault::bug, "an op on cuda in a program that was built without CUDA");
}

}  // namespace

void fill(Queue&, const Tensor&, float) {
  not_built();
}
void fill_zeros(Queue&, std::span<const Tensor>) {
  not_built();
}
void cast(Queue&, const Tensor&, const Tensor&) {
  not_built();
}
void copy(Queue&, const Tensor&, const Tensor&) {
  not_built();
}
void fill_normal(Queue&, const Tensor&, float, const RngKey&, int64_t) {
  not_built();
}
void fill_uniform(Queue&, const Tensor&, float, const RngKey&, int64_t) {
  not_built();
}
void add(Queue&, const Tensor&, const Tensor&, const Tensor&) {
  not_built();
}
void sum_slices(Queue&, const Tensor&, std::span<const Tensor>, Write, int) {
  not_built();
}
void scale(Queue&, const Tensor&, const Tensor&, float) {
  not_built();
}
void dropout(Queue&, const Tensor&, const Tensor&, const DropoutMask&, Write) {
  not_built();
}
void embedding(Queue&, const Tensor&, const Tensor&, const Tensor&, const EmbeddingRows&) {
  not_built();
}
void embedding_backward(Queue&, const Tensor&, const Tensor&, const Tensor&, const EmbeddingRows&) {
  not_built();
}
void head_loss(Queue&, const Tensor&, const HeadOperands&, const Tensor&, int64_t, const Scalar&,
               bool, const HeadRows&, const HeadScratch&) {
  not_built();
}
void adamw(Queue&, std::span<const AdamWParameter>, const Tensor&) {
  not_built();
}
void adamw8bit(Queue&, std::span<const AdamW8bitParameter>, const Tensor&) {
  not_built();
}
void sgd(Queue&, const OptimizerOperands&, const SgdStep&, const Tensor&) {
  not_built();
}
void sum_squares(Queue&, const Tensor&, std::span<const Tensor>, const Tensor&) {
  not_built();
}
void partial_squares(Queue&, const Tensor&, std::span<const Tensor>) {
  not_built();
}
void add_partials(Queue&, const Tensor&, const Tensor&) {
  not_built();
}
void clip_scale(Queue&, const Tensor&, const Tensor&, float, const Tensor&, double) {
  not_built();
}
void quantize(Queue&, Quantize, const QuantizedPart&, const Tensor&) {
  not_built();
}
void dequantize(Queue&, const Tensor&, const QuantizedMatrix&, int64_t) {
  not_built();
}
void linear(Queue&, const Tensor&, const Tensor&, const QuantizedMatrix&, const Tensor&,
            const ThinTerms&, const Tensor&, const Tensor&) {
  not_built();
}
void linear_backward_data(Queue&, const Tensor&, const Tensor&, const QuantizedMatrix&,
                          const Tensor&, const Tensor&) {
  not_built();
}
void rmsnorm(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, float) {
  not_built();
}
void add_rmsnorm(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                 const Tensor&, float) {
  not_built();
}
void rmsnorm_backward(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                      const Tensor&, const Tensor&, Write, const Tensor&) {
  not_built();
}
void rope(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, Rotation) {
  not_built();
}
void swiglu(Queue&, const Tensor&, const Tensor&) {
  not_built();
}
void swiglu_backward(Queue&, const Tensor&, const Tensor&, const Tensor&) {
  not_built();
}
void attention(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
               const AttentionMask&, float) {
  not_built();
}
void attention_backward(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                        const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                        const AttentionMask&, float, const RopeAngles&, const Tensor&) {
  not_built();
}
void attention_cached(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t,
                      int64_t, float) {
  not_built();
}
void dropped_linear(Queue&, const Tensor&, const Tensor&, const Tensor&, float, const DropoutMask&,
                    const Tensor&) {
  not_built();
}
void dropped_linear_backward_data(Queue&, const Tensor&, const Tensor&, const Tensor&,
                                  const DropoutMask&) {
  not_built();
}
void dropped_linear_backward_weight(Queue&, const Tensor&, const Tensor&, const Tensor&,
                                    const DropoutMask&, const Tensor&) {
  not_built();
}
void gemm(Queue&, const Tensor&, const Factor&, const Factor&, const Tensor&, bool, const Tensor&,
          float) {
  not_built();
}
void gemm(Queue&, const Tensor&, const Factor&, const Factor&, const Tensor&, const ThinTerms&,
          const Tensor&) {
  not_built();
}
void bias_backward(Queue&, const Tensor&, const Tensor&, std::byte*) {
  not_built();
}
void linear_fp8(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                const Tensor&) {
  not_built();
}
void linear_fp8_backward(Queue&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, const Tensor&, const Tensor&, Write, const Tensor&) {
  not_built();
}

}  // namespace capstan::cuda
