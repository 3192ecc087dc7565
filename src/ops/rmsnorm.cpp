#include "ops/rmsnorm.h"

#include "ops/bytes_of.h"
#include "ops/check.h"
#include "ops/cpu/rmsnorm.h"
#include "ops/cuda/rmsnorm.h"

namespace capstan {
namespace {

// x's shape without its channels: one value per normalised row.
Shape rows_of(const Tensor& x) {
  return x.rank() == 3 ? Shape{x.dim(0), x.dim(1)} : Shape{x.dim(0)};
}

void check_rstd(const char* op, const Tensor& rstd, const Tensor& x) {
  check::exact(op, "rstd", rstd, DType::f32, rows_of(x));
}

}  // namespace

void rmsnorm(Queue& q, Tensor y, Tensor rstd, Tensor x, Tensor w_D, float eps) {
  check::rank("rmsnorm", "x", x, 2, 3);
  check::strided("rmsnorm", "x", x, x.shape());
  check::strided("rmsnorm", "y", y, x.shape());
  check::dense("rmsnorm", "w", w_D, {x.dim(-1)});
  if (rstd) check_rstd("rmsnorm", rstd, x);

  const auto span = q.account(
      {"rmsnorm", OpKind::elementwise},
      {.flops = 4 * static_cast<double>(x.numel()), .bytes = bytes_of({y, rstd, x, w_D})});
  dispatch(
      q, [&] { cpu::rmsnorm(y, rstd, x, w_D, eps); },
      [&] { cuda::rmsnorm(q, y, rstd, x, w_D, eps); });
}

void add_rmsnorm(Queue& q, Tensor y_TD, Tensor sum_TD, Tensor rstd_T, Tensor x_TD,
                 Tensor residual_TD, Tensor w_D, float eps) {
  check::rank("add_rmsnorm", "x", x_TD, 2, 2);
  check::dense("add_rmsnorm", "x", x_TD, x_TD.shape());
  check::dense("add_rmsnorm", "residual", residual_TD, x_TD.shape());
  check::dense("add_rmsnorm", "sum", sum_TD, x_TD.shape());
  check::dense("add_rmsnorm", "y", y_TD, x_TD.shape());
  check::dense("add_rmsnorm", "w", w_D, {x_TD.dim(1)});
  if (rstd_T) check_rstd("add_rmsnorm", rstd_T, x_TD);

  const auto span = q.account({"add_rmsnorm", OpKind::elementwise},
                              {.flops = 5 * static_cast<double>(x_TD.numel()),
                               .bytes = bytes_of({y_TD, sum_TD, rstd_T, x_TD, residual_TD, w_D})});
  dispatch(
      q, [&] { cpu::add_rmsnorm(y_TD, sum_TD, rstd_T, x_TD, residual_TD, w_D, eps); },
      [&] { cuda::add_rmsnorm(q, y_TD, sum_TD, rstd_T, x_TD, residual_TD, w_D, eps); });
}

void rmsnorm_backward(Queue& q, Tensor dx, Tensor dw_D, Tensor dy, Tensor x, Tensor w_D,
                      Tensor rstd, Write mode) {
  check::rank("rmsnorm_backward", "x", x, 2, 3);
  check::strided("rmsnorm_backward", "x", x, x.shape());
  check::strided("rmsnorm_backward", "dy", dy, x.shape());
  check::strided("rmsnorm_backward", "dx", dx, x.shape());
  check::dense("rmsnorm_backward", "w", w_D, {x.dim(-1)});
  if (dw_D) check::dense("rmsnorm_backward", "dw", dw_D, w_D.shape());
  check_rstd("rmsnorm_backward", rstd, x);

  double bytes = bytes_of({dx, dw_D, dw_D, dy, x, w_D, rstd});
  if (mode == Write::add) bytes += bytes_of({dx});
  const double flops_each = 7 + (dw_D ? 3 : 0) + (mode == Write::add ? 1 : 0);
  const auto span =
      q.account({"rmsnorm_backward", OpKind::elementwise},
                {.flops = flops_each * static_cast<double>(x.numel()), .bytes = bytes});
  Buffer partial;
  if (dw_D) {
    const auto partials =
        q.target() == Device::cuda ? cuda::rmsnorm_partials : cpu::rmsnorm_partials;
    partial =
        q.scratch(DType::f32, {partials(rstd.numel()), x.dim(-1)}, "rmsnorm_backward partial sums");
  }
  dispatch(
      q, [&] { cpu::rmsnorm_backward(dx, dw_D, dy, x, w_D, rstd, mode, partial); },
      [&] { cuda::rmsnorm_backward(q, dx, dw_D, dy, x, w_D, rstd, mode, partial); });
}

}  // namespace capstan
