#include "ops/linear_fp8.h"

#include "ops/check.h"
#include "ops/cpu/linear_fp8.h"
#include "ops/cuda/product/linear_fp8.h"

namespace capstan {
namespace {

bool fits_fp8(const Tensor& x, const Tensor& w) {
  constexpr int64_t kMultiple = 16;
  return x.dim(0) > 0 && w.dim(0) % kMultiple == 0 && w.dim(1) % kMultiple == 0;
}

void check_fp8(const char* op, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b) {
  check::rank(op, "the input", x, 2, 2);
  check::rank(op, "the weight", w, 2, 2);
  const int64_t T = x.dim(0), O = w.dim(0), I = w.dim(1);
  check::strided(op, "the output", y, {T, O});
  check::strided(op, "the input", x, {T, I});
  check::dense(op, "the weight", w, {O, I});
  if (b) check::dense(op, "the bias", b, {O});
}

double flops(const Tensor& x, const Tensor& w) {
  return 2.0 * static_cast<double>(x.numel()) * static_cast<double>(w.dim(0));
}

}  // namespace

void linear_fp8(Queue& q, Tensor y, Tensor x, Tensor w, Tensor b, Tensor amax) {
  check_fp8("linear_fp8", y, x, w, b);
  check::contiguous("linear_fp8", "the output", y);
  check::exact("linear_fp8", "amax", amax, DType::f32, {2});
  if (!fits_fp8(x, w)) return linear(q, y, x, w, b);
  const auto span = q.account(
      {"linear_fp8", OpKind::product},
      {.flops = flops(x, w), .bytes = static_cast<double>(y.nbytes() + x.nbytes() + w.nbytes())});
  const int64_t bytes = q.target() == Device::cuda ? cuda::linear_fp8_scratch(x, w)
                                                   : cpu::linear_fp8_scratch(y, x, w);
  const Buffer scratch = q.scratch(DType::u8, {bytes}, "fp8 factors");
  dispatch(
      q, [&] { cpu::linear_fp8(y, x, w, b, amax, scratch); },
      [&] { cuda::linear_fp8(q, y, x, w, b, amax, scratch); });
}

void linear_fp8_backward(Queue& q, Tensor dx, Tensor dw, Tensor db, Tensor dy, Tensor x, Tensor w,
                         Tensor amax, Write mode) {
  const char* const op = "linear_fp8_backward";
  check_fp8(op, dy, x, w, db);
  check::exact(op, "amax", amax, DType::f32, {2});
  check::dense(op, "the weight's gradient", dw, w.shape());
  if (dx) check::dense(op, "the input's gradient", dx, x.shape());
  if (!fits_fp8(x, w)) {
    linear_backward_weight(q, dw, db, dy, x, mode);
    if (dx) linear_backward_data(q, dx, dy, w);
    return;
  }
  const auto span = q.account({op, OpKind::product},
                              {.flops = flops(x, w) * (dx ? 2 : 1),
                               .bytes = static_cast<double>(dy.nbytes() + x.nbytes() + dw.nbytes() +
                                                            (dx ? dx.nbytes() + w.nbytes() : 0))});
  const int64_t bytes = q.target() == Device::cuda ? cuda::linear_fp8_backward_scratch(dx, dy, x)
                                                   : cpu::linear_fp8_backward_scratch(dx, dw, dy);
  const Buffer scratch = q.scratch(DType::u8, {bytes}, "fp8 factors");
  dispatch(
      q, [&] { cpu::linear_fp8_backward(dx, dw, db, dy, x, w, amax, mode, scratch); },
      [&] { cuda::linear_fp8_backward(q, dx, dw, db, dy, x, w, amax, mode, scratch); });
}

}  // namespace capstan
