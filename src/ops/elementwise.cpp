#include "ops/elementwise.h"

#include "ops/check.h"
#include "ops/cpu/elementwise.h"
#include "ops/cuda/elementwise.h"

namespace capstan {
namespace {

void check_stored(const char* op, const char* name, const Tensor& t) {
  check::floating(op, name, t);
  check::contiguous(op, name, t);
}

}  // namespace

void fill(Queue& q, Tensor y, float value) {
  if (y.dtype() != DType::f64) check_stored("fill", "y", y);
  check::contiguous("fill", "y", y);
  const auto span = q.account({"fill", OpKind::copy}, {.bytes = static_cast<double>(y.nbytes())});
  dispatch(
      q, [&] { cpu::fill(y, value); }, [&] { cuda::fill(q, y, value); });
}

void fill_zeros(Queue& q, std::span<const Tensor> all) {
  Cost cost;
  for (const Tensor& y : all) {
    check_stored("fill_zeros", "a tensor", y);
    cost.bytes += static_cast<double>(y.nbytes());
  }
  const auto span = q.account({"fill", OpKind::copy}, cost);
  dispatch(
      q,
      [&] {
        for (const Tensor& y : all) cpu::fill(y, 0);
      },
      [&] { cuda::fill_zeros(q, all); });
}

void cast(Queue& q, Tensor y, Tensor x) {
  check::shape("cast", "y", y, x.shape());
  for (const Tensor& t : {y, x}) {
    check::floating("cast", "an operand", t);
    if (t.rank() != 2) check::contiguous("cast", "an operand", t);
  }
  const auto span = q.account({"cast", OpKind::elementwise},
                              {.bytes = static_cast<double>(y.nbytes() + x.nbytes())});
  dispatch(
      q, [&] { cpu::cast(y, x); }, [&] { cuda::cast(q, y, x); });
}

void copy(Queue& q, Tensor y, Tensor x) {
  check::exact("copy", "y", y, x.dtype(), x.shape());
  check::contiguous("copy", "x", x);
  const auto span =
      q.account({"copy", OpKind::copy}, {.bytes = static_cast<double>(y.nbytes() + x.nbytes())});
  dispatch(
      q, [&] { cpu::copy(y, x); },
      [&] {
        if (q.on_host(y) && q.on_host(x)) {
          q.synchronize();  // queued work may still write x
          cpu::copy(y, x);
        } else {
          cuda::copy(q, y, x);
        }
      });
}

void fill_normal(Queue& q, Tensor y, float std, const RngKey& key, int64_t first) {
  check_stored("fill_normal", "y", y);
  require(first >= 0, Fault::bug, "fill_normal: first must not be negative, but is {}", first);
  // Ten rounds of Philox and a share of a logarithm, a square root, a sine and a cosine.
  const auto span = q.account(
      {"fill_normal", OpKind::elementwise},
      {.flops = 30 * static_cast<double>(y.numel()), .bytes = static_cast<double>(y.nbytes())});
  dispatch(
      q, [&] { cpu::fill_normal(y, std, key, first); },
      [&] { cuda::fill_normal(q, y, std, key, first); });
}

void fill_uniform(Queue& q, Tensor y, float bound, const RngKey& key, int64_t first) {
  check_stored("fill_uniform", "y", y);
  require(first >= 0, Fault::bug, "fill_uniform: first must not be negative, but is {}", first);
  const auto span = q.account(
      {"fill_uniform", OpKind::elementwise},
      {.flops = 12 * static_cast<double>(y.numel()), .bytes = static_cast<double>(y.nbytes())});
  dispatch(
      q, [&] { cpu::fill_uniform(y, bound, key, first); },
      [&] { cuda::fill_uniform(q, y, bound, key, first); });
}

void add(Queue& q, Tensor y, Tensor a, Tensor b) {
  check::dense("add", "y", y, y.shape());
  for (const Tensor& t : {a, b}) check::exact("add", "a term", t, y.dtype(), y.shape());
  const auto span = q.account(
      {"add", OpKind::elementwise},
      {.flops = static_cast<double>(y.numel()), .bytes = 3 * static_cast<double>(y.nbytes())});
  dispatch(
      q, [&] { cpu::add(y, a, b); }, [&] { cuda::add(q, y, a, b); });
}

void scale(Queue& q, Tensor y, Tensor x, float factor) {
  check::dense("scale", "x", x, x.shape());
  check::dense("scale", "y", y, x.shape());
  const auto span = q.account({"scale", OpKind::elementwise},
                              {.flops = static_cast<double>(y.numel()),
                               .bytes = static_cast<double>(y.nbytes() + x.nbytes())});
  dispatch(
      q, [&] { cpu::scale(y, x, factor); }, [&] { cuda::scale(q, y, x, factor); });
}

void dropout(Queue& q, Tensor y, Tensor x, const DropoutMask& mask, Write mode) {
  check::dense("dropout", "x", x, x.shape());
  check::dense("dropout", "y", y, x.shape());
  check::mask("dropout", mask, x);
  const auto span = q.account({"dropout", OpKind::elementwise},
                              {.flops = 20 * static_cast<double>(y.numel()),
                               .bytes = static_cast<double>(y.nbytes() + x.nbytes())});
  dispatch(
      q, [&] { cpu::dropout(y, x, mask, mode); }, [&] { cuda::dropout(q, y, x, mask, mode); });
}

}  // namespace capstan
