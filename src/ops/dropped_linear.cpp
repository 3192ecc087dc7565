#include "ops/dropped_linear.h"

#include "ops/check.h"
#include "ops/cuda/product/dropped_linear.h"
#include "ops/elementwise.h"
#include "ops/linear.h"

namespace capstan {
namespace {

void check_map(const char* op, const Tensor& y_TO, const Tensor& x_TI, const Tensor& w_OI, float p,
               const RandomKey& key) {
  require(x_TI.rank() == 2 && w_OI.rank() == 2, Fault::bug,
          "{}: operands must be matrices, but are {} and {}", op, x_TI.shape(), w_OI.shape());
  check::dense(op, "x", x_TI, {x_TI.dim(0), w_OI.dim(1)});
  check::dense(op, "y", y_TO, {x_TI.dim(0), w_OI.dim(0)});
  check::dense(op, "w", w_OI, w_OI.shape());
  require(p >= 0 && p < 1, Fault::bug, "{}: p must lie in [0, 1), but is {}", op, p);
  if (key.at) check::exact(op, "the key", key.at, DType::i32, {RandomKey::kWords});
}

// The product's flops; every operand is read or written once, `again` twice.
Cost cost(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& again) {
  return {
      .flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(w.dim(0)),
      .bytes = static_cast<double>(y.nbytes() + x.nbytes() + w.nbytes() + again.nbytes()),
  };
}

bool fused(const Queue& q, const Tensor& w_OI, std::initializer_list<Tensor> read) {
  return q.target() == Device::cuda && cuda::drops_on_the_way(w_OI, read);
}

Buffer dropped(Queue& q, const Tensor& x, float p, const RandomKey& key) {
  Buffer y = q.scratch(x.dtype(), x.shape(), "dropped input");
  dropout(q, y, x, p, key);
  return y;
}

}  // namespace

void dropped_linear(Queue& q, Tensor y, Tensor x, Tensor w, float factor, float p,
                    const RandomKey& key) {
  check_map("dropped_linear", y, x, w, p, key);
  if (!fused(q, w, {x, w}))
    return linear(q, y, dropped(q, x, p, key), w, {}, Write::replace, factor);
  const auto span = q.account({"linear", OpKind::product}, cost(y, x, w, {}));
  const Buffer scratch =
      q.scratch(DType::f32, {cuda::dropped_linear_scratch(y.dim(0), y.dim(1))}, "partial sums");
  if (q.device() == Device::cuda) cuda::dropped_linear(q, y, x, w, factor, p, key, scratch);
}

void dropped_linear_backward_data(Queue& q, Tensor dx, Tensor dy, Tensor w, float p,
                                  const RandomKey& key) {
  check_map("dropped_linear_backward_data", dy, dx, w, p, key);
  if (!fused(q, w, {dx, dy, w})) {
    const Buffer d_dropped = q.scratch(dx.dtype(), dx.shape(), "dropped input's gradient");
    linear_backward_data(q, d_dropped, dy, w);
    return dropout(q, dx, d_dropped, p, key, Write::add);
  }
  const auto span = q.account({"linear_backward_data", OpKind::product}, cost(dy, dx, w, dx));
  if (q.device() == Device::cuda) cuda::dropped_linear_backward_data(q, dx, dy, w, p, key);
}

void dropped_linear_backward_weight(Queue& q, Tensor dw, Tensor dy, Tensor x, float p,
                                    const RandomKey& key) {
  check_map("dropped_linear_backward_weight", dy, x, dw, p, key);
  if (!fused(q, dw, {dy, x})) return linear_backward_weight(q, dw, {}, dy, dropped(q, x, p, key));
  const auto span = q.account({"linear_backward_weight", OpKind::product}, cost(dy, x, dw, dw));
  const Buffer scratch = q.scratch(
      DType::f32, {cuda::dropped_weight_scratch(x.dim(0), dy.dim(1), x.dim(1))}, "partial sums");
  if (q.device() == Device::cuda)
    cuda::dropped_linear_backward_weight(q, dw, dy, x, p, key, scratch);
}

}  // namespace capstan
