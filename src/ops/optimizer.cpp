#include "ops/optimizer.h"

#include "ops/check.h"
#include "ops/cpu/optimizer.h"
#include "ops/cuda/optimizer.h"

namespace capstan {
namespace {

void check_parameter(const char* op, const OptimizerOperands& p) {
  check::dense(op, "weight", p.weight, p.weight.shape());
  check::dense(op, "grad", p.grad, p.weight.shape());
  if (p.master) check::dense(op, "master", p.master, p.weight.shape());
  if (p.grad_scale) check::exact(op, "grad_scale", p.grad_scale, DType::f32, {1});
  require(!p.rounding || (p.weight.dtype() == DType::bf16 && !p.master), Fault::bug,
          "{}: only a bf16 weight without a master is rounded by draws", op);
  const auto& [first, width, columns, skipped] = p.place;
  for (const int64_t count : {first, width, columns, skipped})
    require(count >= 0 && count % 8 == 0, Fault::bug,
            "{}: the place for rounding must be in multiples of 8, but has {}", op, count);
  require(width <= columns && (width > 0 || (columns == 0 && skipped == 0)), Fault::bug,
          "{}: for rounding, {} of {} columns, {} values skipped, is no place", op, width, columns,
          skipped);
  require(!p.rounding || (skipped + p.weight.numel()) / 8 <= UINT32_MAX, Fault::bug,
          "{}: a weight of {} values is too large to be rounded", op, p.weight.numel());
}

void check_flag(const char* op, const Tensor& not_finite) {
  if (not_finite) check::exact(op, "not_finite", not_finite, DType::f64, {1});
}

// The gradient is read; everything else is read and written, except a weight that its master
// overwrites.
double bytes_of(const OptimizerOperands& p) {
  const int64_t weight =
      p.master ? p.weight.nbytes() + 2 * p.master.nbytes() : 2 * p.weight.nbytes();
  return static_cast<double>(weight + p.grad.nbytes() + 2 * (p.m.nbytes() + p.v.nbytes()));
}

}  // namespace

void adamw(Queue& q, const OptimizerOperands& p, const AdamWStep& s) {
  const AdamWParameter one{p, s};
  adamw(q, std::span(&one, 1));
}

void adamw(Queue& q, std::span<const AdamWParameter> all, Tensor not_finite) {
  check_flag("adamw", not_finite);
  Cost cost;
  for (const auto& [p, s] : all) {
    check_parameter("adamw", p);
    check::dense("adamw", "m", p.m, p.weight.shape());
    check::dense("adamw", "v", p.v, p.weight.shape());
    require(s.step >= 1, Fault::bug, "adamw: step must be 1 or more, but is {}", s.step);
    cost.flops += 14 * static_cast<double>(p.weight.numel());
    cost.bytes += bytes_of(p);
  }
  const auto span = q.account({"adamw", OpKind::optimizer}, cost);
  dispatch(
      q,
      [&] {
        for (const auto& [p, s] : all) cpu::adamw(p, s, not_finite);
      },
      [&] { cuda::adamw(q, all, not_finite); });
}

void adamw8bit(Queue& q, const OptimizerOperands& p, const MomentScales& absmax,
               const AdamWStep& s) {
  const AdamW8bitParameter one{p, absmax, s};
  adamw8bit(q, std::span(&one, 1));
}

void adamw8bit(Queue& q, std::span<const AdamW8bitParameter> all, Tensor not_finite) {
  check_flag("adamw8bit", not_finite);
  Cost cost;
  for (const auto& [p, absmax, s] : all) {
    check_parameter("adamw8bit", p);
    const int64_t n = p.weight.numel(), blocks = adamw8bit_blocks(n);
    for (const Tensor& moment : {p.m, p.v})
      check::exact("adamw8bit", "a moment", moment, DType::u8, p.weight.shape());
    for (const Tensor& scales : {absmax.m, absmax.v})
      check::exact("adamw8bit", "absmax", scales, DType::f32, {blocks});
    require(s.step >= 1, Fault::bug, "adamw8bit: step must be 1 or more, but is {}", s.step);
    // Besides adamw's work: dequantization, the maximum of each block, a division and a comparison.
    cost.flops += 22 * static_cast<double>(n);
    cost.bytes += bytes_of(p) + static_cast<double>(2 * (absmax.m.nbytes() + absmax.v.nbytes()));
  }
  const auto span = q.account({"adamw8bit", OpKind::optimizer}, cost);
  dispatch(
      q,
      [&] {
        for (const auto& [p, absmax, s] : all) cpu::adamw8bit(p, absmax, s, not_finite);
      },
      [&] { cuda::adamw8bit(q, all, not_finite); });
}

void sgd(Queue& q, const OptimizerOperands& p, const SgdStep& s, Tensor not_finite) {
  check_flag("sgd", not_finite);
  check_parameter("sgd", p);
  if (s.momentum != 0) check::dense("sgd", "m", p.m, p.weight.shape());
  require(s.momentum != 0 || !p.m, Fault::bug, "sgd: m is given, but there is no momentum");
  require(!p.v, Fault::bug, "sgd: v is given, but SGD has no second moment");
  require(s.step >= 1, Fault::bug, "sgd: step must be 1 or more, but is {}", s.step);
  const auto span =
      q.account({"sgd", OpKind::optimizer},
                {.flops = 8 * static_cast<double>(p.weight.numel()), .bytes = bytes_of(p)});
  dispatch(
      q, [&] { cpu::sgd(p, s, not_finite); }, [&] { cuda::sgd(q, p, s, not_finite); });
}

void sum_squares(Queue& q, Tensor sum, Tensor x) {
  sum_squares(q, sum, std::span<const Tensor>(&x, 1));
}

namespace {

Cost cost_of_squares(const char* op, std::span<const Tensor> all) {
  Cost cost;
  for (const Tensor& x : all) {
    check::dense(op, "x", x, x.shape());
    cost.flops += 2 * static_cast<double>(x.numel());
    cost.bytes += static_cast<double>(x.nbytes());
  }
  return cost;
}

}  // namespace

int64_t square_partials(Device device, int64_t n) {
  return device == Device::cuda ? cuda::sum_partials(n) : cpu::sum_partials(n);
}

void partial_squares(Queue& q, Tensor partials, std::span<const Tensor> all) {
  int64_t count = 0;
  for (const Tensor& x : all) count += square_partials(q.target(), x.numel());
  check::exact("partial_squares", "partials", partials, DType::f64, {count});
  const auto span =
      q.account({"partial_squares", OpKind::optimizer}, cost_of_squares("partial_squares", all));
  dispatch(
      q, [&] { cpu::partial_squares(partials, all); },
      [&] { cuda::partial_squares(q, partials, all); });
}

void add_partials(Queue& q, Tensor sum, Tensor partials) {
  check::exact("add_partials", "sum", sum, DType::f64, {1});
  check::exact("add_partials", "partials", partials, DType::f64, {partials.numel()});
  const auto n = static_cast<double>(partials.numel());
  const auto span = q.account({"add_partials", OpKind::optimizer}, {.flops = n, .bytes = 8 * n});
  dispatch(
      q, [&] { cpu::add_partials(sum, partials); }, [&] { cuda::add_partials(q, sum, partials); });
}

void sum_squares(Queue& q, Tensor sum, std::span<const Tensor> all) {
  check::exact("sum_squares", "sum", sum, DType::f64, {1});
  const Cost cost = cost_of_squares("sum_squares", all);
  int64_t partial_sums = 0;
  for (const Tensor& x : all) partial_sums += cuda::sum_partials(x.numel());
  const auto span = q.account({"sum_squares", OpKind::optimizer}, cost);
  const Buffer partials =
      q.scratch(DType::f64, {q.target() == Device::cuda ? partial_sums : 0}, "partial sums");
  dispatch(
      q,
      [&] {
        for (const Tensor& x : all) cpu::sum_squares(sum, x);
      },
      [&] { cuda::sum_squares(q, sum, all, partials); });
}

void clip_scale(Queue& q, Tensor scale, Tensor sum, float max_norm, Tensor loss, double times) {
  check::exact("clip_scale", "scale", scale, DType::f32, {1});
  check::exact("clip_scale", "sum", sum, DType::f64, {1});
  if (loss) check::exact("clip_scale", "loss", loss, DType::f64, {1});
  require(max_norm >= 0, Fault::bug, "clip_scale: max_norm must not be negative, but is {}",
          max_norm);
  const auto span = q.account({"clip_scale", OpKind::optimizer}, {.flops = 3, .bytes = 12});
  dispatch(
      q, [&] { cpu::clip_scale(scale, sum, max_norm, loss, times); },
      [&] { cuda::clip_scale(q, scale, sum, max_norm, loss, times); });
}

}  // namespace capstan
