#include "ops/head_loss.h"

#include <algorithm>

#include "ops/cpu/gemm.h"
#include "ops/cpu/head_loss.h"

namespace capstan {
namespace {

void check(const char* op, const Tensor& loss, const Tensor& x_TD, const Tensor& w_VD,
           const Tensor& labels_T) {
  require(loss.dtype() == DType::f64 && loss.numel() == 1, Fault::bug,
          "{}: the loss is {} of {}, expected one f64", op, loss.shape(), name_of(loss.dtype()));
  require(x_TD.rank() == 2 && w_VD.rank() == 2 && x_TD.dim(1) == w_VD.dim(1), Fault::bug,
          "{}: x {} does not fit the head {}", op, x_TD.shape(), w_VD.shape());
  require(labels_T.dtype() == DType::i32 && labels_T.numel() == x_TD.dim(0), Fault::bug,
          "{}: {} labels of {} for {} tokens", op, labels_T.numel(), name_of(labels_T.dtype()),
          x_TD.dim(0));
  for (const Tensor& t : {x_TD, w_VD})
    require(t.contiguous() && (t.dtype() == DType::f32 || t.dtype() == DType::bf16), Fault::bug,
            "{}: x and w must be contiguous f32 or bf16", op);
}

void run(Queue& q, Tensor loss, Tensor dx, Tensor dw, Tensor x, Tensor w, Tensor labels,
         float scale) {
  const int64_t rows = cpu::head_chunk_rows(x.dim(0), w.dim(0)), dim = x.dim(1);
  const int64_t backward_rows = dx ? rows : 0;
  const int64_t panels = std::max(cpu::gemm_scratch(DType::f32, w.dtype(), DType::f32),
                                  dw ? cpu::gemm_scratch(DType::f32, DType::f32, dw.dtype()) : 0);
  const Buffer logits = q.scratch(DType::f32, {rows, w.dim(0)}, "logits of a chunk");
  const Buffer x_rows = q.scratch(DType::f32, {rows, dim}, "head inputs of a chunk");
  const Buffer dx_rows = q.scratch(DType::f32, {backward_rows, dim}, "head gradients of a chunk");
  const Buffer tokens = q.scratch(DType::i32, {rows}, "tokens of a chunk");
  const Buffer losses = q.scratch(DType::f64, {rows}, "losses of a chunk");
  const Buffer space = q.scratch(DType::u8, {panels}, "gemm panels");
  switch (q.device()) {
    case Device::cpu:
      return cpu::head_loss(loss, dx, dw, x, w, labels, scale,
                            {rows, logits, x_rows, dx_rows, tokens, losses, space});
    case Device::sim: return;
  }
}

// Of one product of the tokens that count with the head.
double product_flops(const Tensor& x, const Tensor& w, int64_t targets) {
  return 2.0 * static_cast<double>(targets < 0 ? x.dim(0) : targets) *
         static_cast<double>(w.numel());
}

}  // namespace

void head_loss(Queue& q, Tensor loss, Tensor x, Tensor w, Tensor labels, int64_t targets) {
  check("head_loss", loss, x, w, labels);
  const auto span = q.account("head_loss", {.flops = product_flops(x, w, targets),
                                            .bytes = static_cast<double>(x.nbytes() + w.nbytes())});
  run(q, loss, {}, {}, x, w, labels, 0);
}

void head_loss_backward(Queue& q, Tensor loss, Tensor dx, Tensor dw, Tensor x, Tensor w,
                        Tensor labels, float scale, int64_t targets) {
  check("head_loss_backward", loss, x, w, labels);
  require(dx.shape() == x.shape() && dx.contiguous() && dw.shape() == w.shape() && dw.contiguous(),
          Fault::bug, "head_loss_backward: dx {} and dw {} do not fit x {} and w {}", dx.shape(),
          dw.shape(), x.shape(), w.shape());
  for (const Tensor& t : {dx, dw})
    require(t.dtype() == DType::f32 || t.dtype() == DType::bf16, Fault::bug,
            "head_loss_backward: dx and dw must be f32 or bf16, not {}", name_of(t.dtype()));
  const auto span =
      q.account("head_loss_backward",
                {.flops = 3 * product_flops(x, w, targets),
                 .bytes = static_cast<double>(2 * x.nbytes() + w.nbytes() + 2 * dw.nbytes())});
  run(q, loss, dx, dw, x, w, labels, scale);
}

}  // namespace capstan
