#include "ops/rope.h"

#include "ops/check.h"
#include "ops/cpu/rope.h"
#include "ops/cuda/rope.h"

namespace capstan {

void rope(Queue& q, Tensor x_THD, Tensor cos_PD, Tensor sin_PD, Tensor positions_T,
          Rotation rotation) {
  check::rank("rope", "x", x_THD, 3, 3);
  check::floating("rope", "x", x_THD);
  require(x_THD.dim(2) % 2 == 0, Fault::bug, "rope: x must have an even head size, but has {}",
          x_THD.dim(2));
  check::rank("rope", "cos", cos_PD, 2, 2);
  const Shape table{cos_PD.dim(0), x_THD.dim(2) / 2};
  check::exact("rope", "cos", cos_PD, DType::f32, table);
  check::exact("rope", "sin", sin_PD, DType::f32, table);
  check::exact("rope", "positions", positions_T, DType::i32, {x_THD.dim(0)});

  // A token's angles are read once for all of its heads.
  const int64_t table_bytes = x_THD.dim(0) * x_THD.dim(2) * size_of(DType::f32);
  const auto span = q.account(
      {"rope", OpKind::elementwise},
      {.flops = 3 * static_cast<double>(x_THD.numel()),
       .bytes = static_cast<double>(2 * x_THD.nbytes() + table_bytes + positions_T.nbytes())});
  dispatch(
      q, [&] { cpu::rope(x_THD, cos_PD, sin_PD, positions_T, rotation); },
      [&] { cuda::rope(q, x_THD, cos_PD, sin_PD, positions_T, rotation); });
}

}  // namespace capstan
