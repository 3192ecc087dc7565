#include "ops/quantize.h"

#include "ops/check.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/linear.h"
#include "ops/cpu/quantize.h"
#include "ops/cuda/product/gemm.h"
#include "ops/cuda/quantize.h"

namespace capstan {
namespace {

bool is_double(Quantize kind) {
  return kind == Quantize::nf4_dq || kind == Quantize::fp4_dq;
}

int64_t blocks_of(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

void check_part(const char* op, const QuantizedMatrix& m, const QuantizedPart& p) {
  const QuantizedSizes s = quantized_sizes(m.kind, p.rows, m.shape[1]);
  check::exact(op, "packed", p.packed, DType::u8, {s.packed});
  check::exact(op, "absmax", p.absmax, s.absmax_type, {s.absmax});
  if (s.scale > 0) check::exact(op, "scale", p.scale, DType::f32, {s.scale});
}

void check_matrix(const char* op, const QuantizedMatrix& m) {
  int64_t rows = 0;
  for (int i = 0; i < m.count; ++i) {
    const QuantizedPart& p = m.parts[static_cast<size_t>(i)];
    require(p.first_row == rows, Fault::bug, "{}: part {} begins at row {}, expected {}", op, i,
            p.first_row, rows);
    check_part(op, m, p);
    rows += p.rows;
  }
  require(m.kind != Quantize::none && m.shape.rank() == 2 && rows == m.shape[0], Fault::bug,
          "{}: parts of {} rows for a matrix {}", op, rows, m.shape);
}

void check_product(const char* op, const Tensor& y, const Tensor& x, const QuantizedMatrix& w) {
  check_matrix(op, w);
  check::strided(op, "y", y, {x.dim(0), w.shape[0]});
  check::strided(op, "x", x, {x.dim(0), w.shape[1]});
}

Cost cost(const Tensor& y, const Tensor& x, const QuantizedMatrix& w) {
  return {.flops = 2.0 * static_cast<double>(x.numel()) * static_cast<double>(w.shape[0]),
          .bytes = static_cast<double>(y.nbytes() + x.nbytes() + w.nbytes())};
}

// On cuda, some rows at a time are dequantized; on cpu the product does this itself. In the model
// of a GPU that takes its own time: the rows are written, and read again.
Buffer widened_rows(Queue& q, DType type, const QuantizedMatrix& w) {
  if (q.device() == Device::sim && q.target() == Device::cuda) {
    const double wide = 2.0 * static_cast<double>(w.shape[0] * w.shape[1] * size_of(type));
    const auto span = q.account({"widen", OpKind::elementwise},
                                {.flops = 0, .bytes = static_cast<double>(w.nbytes()) + wide});
  }
  const int64_t rows = q.target() == Device::cuda ? cuda::quantized_chunk_rows(w.shape) : 0;
  return q.scratch(type, {rows, w.shape[1]}, "widened rows");
}

Buffer product_scratch(Queue& q, const Tensor& x, const Tensor& chunk, bool transposed,
                       const Tensor& y, const ThinTerms& terms = {}) {
  const bool gpu = q.target() == Device::cuda;
  int64_t bytes = gpu ? cuda::gemm_scratch({x, false}, {chunk, transposed}, y)
                      : cpu::gemm_scratch(x.dtype(), DType::u8, y.dtype());
  for (const ThinTerm& t : terms)
    bytes = std::max(bytes, gpu ? cuda::gemm_scratch({t.x_TR, false}, {t.w_OR, true}, y)
                                : cpu::gemm_scratch(t.x_TR.dtype(), t.w_OR.dtype(), y.dtype()));
  return q.scratch(DType::u8, {bytes}, "gemm panels");
}

}  // namespace

int64_t QuantizedMatrix::nbytes() const {
  int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const QuantizedPart& p = parts[static_cast<size_t>(i)];
    sum += p.packed.nbytes() + p.absmax.nbytes() + p.scale.nbytes();
  }
  return sum;
}

QuantizedSizes quantized_sizes(Quantize kind, int64_t rows, int64_t cols) {
  const int64_t n = rows * cols;
  if (kind == Quantize::int8) return {n, rows, 0, DType::f32};
  const int64_t blocks = blocks_of(n, 64);
  if (!is_double(kind)) return {(n + 1) / 2, blocks, 0, DType::f32};
  return {(n + 1) / 2, blocks, blocks_of(blocks, 256) + 1, DType::u8};
}

void quantize(Queue& q, const QuantizedMatrix& to, int part, Tensor x) {
  check_matrix("quantize", to);
  require(part >= 0 && part < to.count, Fault::bug, "quantize: part {} of {}", part, to.count);
  const QuantizedPart& p = to.parts[static_cast<size_t>(part)];
  check::shape("quantize", "x", x, {p.rows, to.shape[1]});
  check::contiguous("quantize", "x", x);
  check::floating("quantize", "x", x);
  const auto span = q.account(
      {"quantize", OpKind::elementwise},
      {.flops = 8 * static_cast<double>(x.numel()), .bytes = static_cast<double>(x.nbytes())});
  dispatch(
      q, [&] { cpu::quantize(to.kind, p, x); }, [&] { cuda::quantize(q, to.kind, p, x); });
}

void dequantize(Queue& q, Tensor y, const QuantizedMatrix& from, int64_t first) {
  check_matrix("dequantize", from);
  require(first >= 0 && first + y.dim(0) <= from.shape[0], Fault::bug,
          "dequantize: rows {} to {} of {}", first, first + y.dim(0), from.shape[0]);
  check::dense("dequantize", "y", y, {y.dim(0), from.shape[1]});
  const auto span = q.account(
      {"dequantize", OpKind::elementwise},
      {.flops = static_cast<double>(y.numel()), .bytes = static_cast<double>(y.nbytes())});
  dispatch(
      q, [&] { cpu::dequantize(y, from, first); }, [&] { cuda::dequantize(q, y, from, first); });
}

void linear(Queue& q, Tensor y, Tensor x, const QuantizedMatrix& w, Tensor b,
            const ThinTerms& terms) {
  check_product("linear", y, x, w);
  if (b) check::dense("linear", "b", b, {w.shape[0]});
  const auto span =
      q.account({"linear", OpKind::product}, terms.checked_cost("linear", y, cost(y, x, w)));
  const Buffer chunk = widened_rows(q, x.dtype(), w);
  const Buffer scratch = product_scratch(q, x, chunk, true, y, terms);
  dispatch(
      q,
      [&] {
        cpu::gemm(x.dim(0), w.shape[0], w.shape[1], cpu::matrix(x), cpu::matrix(w, true), y.raw(),
                  y.dtype(), y.stride(0), false, scratch->raw(), b);
        cpu::add_terms(y, terms, scratch);
      },
      [&] { cuda::linear(q, y, x, w, b, terms, chunk, scratch); });
}

void linear_backward_data(Queue& q, Tensor dx, Tensor dy, const QuantizedMatrix& w) {
  check_product("linear_backward_data", dy, dx, w);
  const auto span = q.account({"linear_backward_data", OpKind::product}, cost(dy, dx, w));
  const Buffer chunk = widened_rows(q, dy.dtype(), w);
  const Buffer scratch = product_scratch(q, dy, chunk, false, dx);
  dispatch(
      q,
      [&] {
        cpu::gemm(dy.dim(0), w.shape[1], w.shape[0], cpu::matrix(dy), cpu::matrix(w), dx.raw(),
                  dx.dtype(), dx.stride(0), false, scratch->raw());
      },
      [&] { cuda::linear_backward_data(q, dx, dy, w, chunk, scratch); });
}

}  // namespace capstan
