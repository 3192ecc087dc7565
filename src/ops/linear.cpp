#include "ops/linear.h"

#include <algorithm>

#include "ops/cpu/gemm.h"
#include "ops/cpu/linear.h"
#include "ops/cuda/product/linear.h"

namespace capstan {
namespace {

void check_linear(const char* op, const Tensor& y_TO, const Tensor& x_TI, const Tensor& w_OI,
                  const Tensor& b_O) {
  require(y_TO.rank() == 2 && x_TI.rank() == 2 && w_OI.rank() == 2, Fault::bug,
          "{}: operands must be matrices, but are {}, {}, {}", op, y_TO.shape(), x_TI.shape(),
          w_OI.shape());
  require(y_TO.dim(0) == x_TI.dim(0) && y_TO.dim(1) == w_OI.dim(0) && x_TI.dim(1) == w_OI.dim(1),
          Fault::bug, "{}: outputs {} and inputs {} do not fit the weight {}", op, y_TO.shape(),
          x_TI.shape(), w_OI.shape());
  require(w_OI.contiguous(), Fault::bug, "{}: the weight must be contiguous", op);
  if (b_O)
    require(b_O.rank() == 1 && b_O.dim(0) == w_OI.dim(0) && b_O.contiguous(), Fault::bug,
            "{}: the bias is {} for {} outputs", op, b_O.shape(), w_OI.dim(0));
  for (const Tensor& t : {y_TO, x_TI, w_OI, b_O ? b_O : w_OI})
    require(is_floating(t.dtype()), Fault::bug, "{}: takes f32, bf16 and f16, not {}", op,
            name_of(t.dtype()));
}

Cost cost(const Tensor& y, const Tensor& x, const Tensor& w) {
  return {.flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(w.dim(0)),
          .bytes = static_cast<double>(y.nbytes() + x.nbytes() + w.nbytes())};
}

// For c = a b, where each factor may be transposed.
int64_t scratch_bytes(const Queue& q, const cuda::Factor& a, const cuda::Factor& b,
                      const Tensor& c) {
  return q.target() == Device::cuda
             ? cuda::gemm_scratch(a, b, c)
             : cpu::gemm_scratch(a.matrix.dtype(), b.matrix.dtype(), c.dtype());
}
Buffer make_scratch(Queue& q, int64_t bytes) {
  return q.scratch(DType::u8, {bytes}, "gemm panels");
}
Buffer product_scratch(Queue& q, const cuda::Factor& a, const cuda::Factor& b, const Tensor& c) {
  return make_scratch(q, scratch_bytes(q, a, b, c));
}

}  // namespace

void linear(Queue& q, Tensor y, Tensor x, Tensor w, Tensor b, Write mode, float factor) {
  check_linear("linear", y, x, w, b);
  const auto span = q.account({"linear", OpKind::product}, cost(y, x, w));
  const Buffer scratch = product_scratch(q, {x, false}, {w, true}, y);
  dispatch(
      q, [&] { cpu::linear(y, x, w, b, mode, factor, scratch); },
      [&] { cuda::linear(q, y, x, w, b, mode, factor, scratch); });
}

void linear(Queue& q, Tensor y, Tensor x, Tensor w, Tensor b, const ThinTerms& terms) {
  check_linear("linear", y, x, w, b);
  const auto span =
      q.account({"linear", OpKind::product}, terms.checked_cost("linear", y, cost(y, x, w)));
  int64_t bytes = scratch_bytes(q, {x, false}, {w, true}, y);
  for (const ThinTerm& t : terms)
    bytes = std::max(bytes, scratch_bytes(q, {t.x_TR, false}, {t.w_OR, true}, y));
  const Buffer scratch = make_scratch(q, bytes);
  dispatch(
      q,
      [&] {
        cpu::linear(y, x, w, b, Write::replace, 1, scratch);
        cpu::add_terms(y, terms, scratch);
      },
      [&] { cuda::linear(q, y, x, w, b, terms, scratch); });
}

void linear_backward_data(Queue& q, Tensor dx, Tensor dy, Tensor w, Write mode, float factor) {
  check_linear("linear_backward_data", dy, dx, w, {});
  const auto span = q.account({"linear_backward_data", OpKind::product}, cost(dy, dx, w));
  const Buffer scratch = product_scratch(q, {dy, false}, {w, false}, dx);
  dispatch(
      q, [&] { cpu::linear_backward_data(dx, dy, w, mode, factor, scratch); },
      [&] { cuda::linear_backward_data(q, dx, dy, w, mode, factor, scratch); });
}

void linear_backward_weight(Queue& q, Tensor dw, Tensor db, Tensor dy, Tensor x, Write mode) {
  check_linear("linear_backward_weight", dy, x, dw, db);
  const auto span = q.account({"linear_backward_weight", OpKind::product}, cost(dy, x, dw));
  const Buffer scratch = product_scratch(q, {dy, true}, {x, false}, dw);
  dispatch(
      q, [&] { cpu::linear_backward_weight(dw, db, dy, x, mode, scratch); },
      [&] { cuda::linear_backward_weight(q, dw, db, dy, x, mode, scratch); });
}

}  // namespace capstan
