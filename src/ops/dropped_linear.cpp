#include "ops/dropped_linear.h"

#include "ops/check.h"
#include "ops/cuda/product/dropped_linear.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace capstan {
namespace {

void check_map(const char* op, const Tensor& y_TO, const Tensor& x_TI, const Tensor& w_OI,
               const DropoutMask& mask) {
  require(x_TI.rank() == 2 && w_OI.rank() == 2, Fault::bug,
          "{}: operands must be matrices, but are {} and {}", op, x_TI.shape(), w_OI.shape());
  check::dense(op, "x", x_TI, {x_TI.dim(0), w_OI.dim(1)});
  check::dense(op, "y", y_TO, {x_TI.dim(0), w_OI.dim(0)});
  check::dense(op, "w", w_OI, w_OI.shape());
  check::mask(op, mask, x_TI);
}

// The product's flops; every operand is read or written once, `again` twice.
Cost cost(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& again) {
  return {
      .flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(w.dim(0)),
      .bytes = static_cast<double>(y.nbytes() + x.nbytes() + w.nbytes() + again.nbytes()),
  };
}

bool fused(const Queue& q, const Tensor& w_OI, const DropoutMask& mask,
           std::initializer_list<Tensor> read) {
  return q.target() == Device::cuda && cuda::drops_on_the_way(w_OI, mask, read);
}

Buffer dropped(Queue& q, const Tensor& x, const DropoutMask& mask) {
  Buffer y = q.scratch(x.dtype(), x.shape(), "dropped input");
  dropout(q, y, x, mask);
  return y;
}

}  // namespace

void dropped_linear(Queue& q, Tensor y, Tensor x, Tensor w, float factor, const DropoutMask& mask) {
  check_map("dropped_linear", y, x, w, mask);
  if (!fused(q, w, mask, {x, w}))
    return linear(q, y, dropped(q, x, mask), w, {}, Write::replace, factor);
  const auto span = q.account({"linear", OpKind::product}, cost(y, x, w, {}));
  const Buffer scratch =
      q.scratch(DType::f32, {cuda::dropped_linear_scratch(y.dim(0), y.dim(1))}, "partial sums");
  if (q.device() == Device::cuda) cuda::dropped_linear(q, y, x, w, factor, mask, scratch);
}

void dropped_linear_backward_data(Queue& q, Tensor dx, Tensor dy, Tensor w,
                                  const DropoutMask& mask) {
  check_map("dropped_linear_backward_data", dy, dx, w, mask);
  if (!fused(q, w, mask, {dx, dy, w})) {
    const Buffer d_dropped = q.scratch(dx.dtype(), dx.shape(), "dropped input's gradient");
    linear_backward_data(q, d_dropped, dy, w);
    return dropout(q, dx, d_dropped, mask, Write::add);
  }
  const auto span = q.account({"linear_backward_data", OpKind::product}, cost(dy, dx, w, dx));
  if (q.device() == Device::cuda) cuda::dropped_linear_backward_data(q, dx, dy, w, mask);
}

void dropped_linear_backward_weight(Queue& q, Tensor dw, Tensor dy, Tensor x,
                                    const DropoutMask& mask) {
  check_map("dropped_linear_backward_weight", dy, x, dw, mask);
  if (!fused(q, dw, mask, {dy, x}))
    return linear_backward_weight(q, dw, {}, dy, dropped(q, x, mask));
  const auto span = q.account({"linear_backward_weight", OpKind::product}, cost(dy, x, dw, dw));
  const Buffer scratch = q.scratch(
      DType::f32, {cuda::dropped_weight_scratch(x.dim(0), dy.dim(1), x.dim(1))}, "partial sums");
  if (q.device() == Device::cuda) cuda::dropped_linear_backward_weight(q, dw, dy, x, mask, scratch);
}

}  // namespace capstan
