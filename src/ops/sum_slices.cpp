#include "ops/sum_slices.h"

#include "ops/check.h"
#include "ops/cpu/sum_slices.h"
#include "ops/cuda/sum_slices.h"

namespace capstan {

void sum_slices(Queue& q, Tensor y, std::span<const Tensor> x, Write mode, int groups) {
  require(!x.empty() && x.size() <= kMostSlices, Fault::bug,
          "sum_slices: takes 1 to {} operands, but has {}", kMostSlices, x.size());
  require(groups > 0 && x.size() % static_cast<size_t>(groups) == 0, Fault::bug,
          "sum_slices: {} operands cannot be {} groups", x.size(), groups);
  if (y.dtype() != DType::f64) check::floating("sum_slices", "y", y);
  check::contiguous("sum_slices", "y", y);
  for (const Tensor& t : x) {
    check::type("sum_slices", "x", t, y.dtype());
    check::contiguous("sum_slices", "x", t);
    require(t.numel() == y.numel(), Fault::bug, "sum_slices: x has {} values, y {}", t.numel(),
            y.numel());
  }
  const auto terms = static_cast<double>(x.size() + (mode == Write::add ? 1 : 0));
  const auto span = q.account({"sum_slices", OpKind::elementwise},
                              {.flops = terms * static_cast<double>(y.numel()),
                               .bytes = (terms + 1) * static_cast<double>(y.nbytes())});
  dispatch(
      q, [&] { cpu::sum_slices(y, x, mode, groups); },
      [&] { cuda::sum_slices(q, y, x, mode, groups); });
}

}  // namespace capstan
