#include "ops/swiglu.h"

#include "ops/check.h"
#include "ops/cpu/swiglu.h"
#include "ops/cuda/swiglu.h"

namespace capstan {

void swiglu(Queue& q, Tensor y_TF, Tensor gu_T2F) {
  check::rank("swiglu", "y", y_TF, 2, 2);
  check::dense("swiglu", "y", y_TF, y_TF.shape());
  check::dense("swiglu", "gu", gu_T2F, {y_TF.dim(0), 2 * y_TF.dim(1)});
  const auto span = q.account({"swiglu", OpKind::elementwise},
                              {.flops = 5 * static_cast<double>(y_TF.numel()),
                               .bytes = static_cast<double>(y_TF.nbytes() + gu_T2F.nbytes())});
  dispatch(
      q, [&] { cpu::swiglu(y_TF, gu_T2F); }, [&] { cuda::swiglu(q, y_TF, gu_T2F); });
}

void swiglu_backward(Queue& q, Tensor dgu_T2F, Tensor dy_TF, Tensor gu_T2F) {
  check::rank("swiglu_backward", "dy", dy_TF, 2, 2);
  check::dense("swiglu_backward", "dy", dy_TF, dy_TF.shape());
  check::dense("swiglu_backward", "gu", gu_T2F, {dy_TF.dim(0), 2 * dy_TF.dim(1)});
  check::dense("swiglu_backward", "dgu", dgu_T2F, gu_T2F.shape());
  const auto span = q.account(
      {"swiglu_backward", OpKind::elementwise},
      {.flops = 10 * static_cast<double>(dy_TF.numel()),
       .bytes = static_cast<double>(dgu_T2F.nbytes() + dy_TF.nbytes() + gu_T2F.nbytes())});
  dispatch(
      q, [&] { cpu::swiglu_backward(dgu_T2F, dy_TF, gu_T2F); },
      [&] { cuda::swiglu_backward(q, dgu_T2F, dy_TF, gu_T2F); });
}

}  // namespace capstan
