#include "ops/head_loss.h"

#include <algorithm>

#include "ops/bytes_of.h"
#include "ops/check.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/head_loss.h"
#include "ops/cuda/head_loss.h"
#include "ops/head_stats.h"

namespace capstan {
namespace {

void check_operands(const char* op, const Tensor& loss, const Tensor& x_TD, const Tensor& w_VD,
                    const Tensor& labels_T) {
  require(loss.dtype() == DType::f64 && loss.numel() == 1, Fault::bug,
          "{}: the loss is {} of {}, expected one f64", op, loss.shape(), name_of(loss.dtype()));
  require(x_TD.rank() == 2 && w_VD.rank() == 2 && x_TD.dim(1) == w_VD.dim(1), Fault::bug,
          "{}: x {} does not fit the head {}", op, x_TD.shape(), w_VD.shape());
  require(labels_T.dtype() == DType::i32 && labels_T.numel() == x_TD.dim(0), Fault::bug,
          "{}: {} labels of {} for {} tokens", op, labels_T.numel(), name_of(labels_T.dtype()),
          x_TD.dim(0));
  for (const Tensor& t : {x_TD, w_VD})
    require(t.contiguous() && is_floating(t.dtype()), Fault::bug,
            "{}: x and w must be contiguous f32, bf16 or f16", op);
}

void check_term(const char* op, const char* name, const HeadTerm& term, const Tensor& x,
                const Tensor& w) {
  const int64_t rank = term.x_TR.dim(1);
  check::dense(op, name, term.x_TR, {x.dim(0), rank});
  check::dense(op, name, term.w_VR, {w.dim(0), rank});
}

void check_rows(const char* op, const HeadRows& rows, const Tensor& w) {
  require(rows.rank >= 0 && rows.rank < rows.ranks && rows.first >= 0, Fault::bug,
          "{}: rank {} of {} cannot have rows from {} on", op, rows.rank, rows.ranks, rows.first);
  if (rows.ranks == 1)
    require(rows.first == 0, Fault::bug, "{}: one rank must have all rows, but begins with {}", op,
            rows.first);
  else
    require(rows.gather && w.dim(0) >= 1 && w.dim(0) <= rows.largest, Fault::bug,
            "{}: of {} ranks, one has {} rows, but the most are {}; or there is no gather", op,
            rows.ranks, w.dim(0), rows.largest);
}

// The rows that decide the size of chunks: equal on all ranks.
int64_t chunk_vocabulary(const Tensor& w, const HeadRows& rows) {
  return rows.ranks > 1 ? rows.largest : w.dim(0);
}

Buffer scratch_for_stats(Queue& q, const HeadRows& rows, int64_t tokens) {
  if (rows.ranks == 1) return {};
  return q.scratch(DType::f64, {head_stats_size(rows.ranks, tokens)}, "statistics of all ranks");
}

// What happens between kernels, where none run: on sim, and when a graph is replayed.
void only_gather(const Tensor& stats, const HeadRows& rows, int64_t targets, int64_t chunk) {
  if (rows.ranks == 1) return;
  for (int64_t first = 0; first < targets; first += chunk) {
    const int64_t n = std::min(chunk, targets - first);
    const auto [all, mine] = head_stats_of_chunk(stats, rows.rank, rows.ranks, n);
    rows.gather(all, mine);
  }
}

struct Gradients {
  Tensor dx, dw;
  HeadTerm d_term;
  Scalar scale = 0;
};

float value_of(const Scalar& scalar) {
  return scalar.at ? *scalar.at.as<float>() : scalar.value;
}

void run_on_cuda(Queue& q, Tensor loss, const Gradients& g, Tensor x, Tensor w, Tensor labels,
                 int64_t targets, const HeadTerm& term, const HeadRows& split, bool backward) {
  const cuda::HeadOperands p{x, w, term, g.dx, g.dw, g.d_term};
  const int64_t T = x.dim(0), rows = cuda::head_chunk_rows(T, chunk_vocabulary(w, split));
  const auto chunk_of = [&](const Tensor& t, const char* name) {
    return q.scratch(t ? t.dtype() : DType::f32, {t ? rows : 0, t ? t.dim(1) : 0}, name);
  };
  const Buffer logits = q.scratch(cuda::logits_type(x, w), {rows, w.dim(0)}, "logits of a chunk");
  const Buffer losses = q.scratch(DType::f64, {T}, "losses");
  const Buffer order = q.scratch(DType::i32, {T + 1}, "tokens that count");
  const Buffer x_rows = chunk_of(x, "head inputs of a chunk");
  const Buffer dx_rows = chunk_of(g.dx, "head gradients of a chunk");
  const Buffer term_rows = chunk_of(term.x_TR, "head term of a chunk");
  const Buffer d_term_rows = chunk_of(g.d_term.x_TR, "head term gradients of a chunk");
  const Buffer space = q.scratch(DType::u8, {cuda::head_gemm_scratch(p, rows)}, "gemm panels");
  const Buffer stats = scratch_for_stats(q, split, rows);
  if (q.device() == Device::cuda)
    cuda::head_loss(q, loss, p, labels, targets, g.scale, backward, split,
                    {logits, losses, space, order, x_rows, dx_rows, term_rows, d_term_rows, stats});
  else
    only_gather(stats, split, targets < 0 ? T : targets, rows);
}

void run(Queue& q, Tensor loss, const Gradients& g, Tensor x, Tensor w, Tensor labels,
         int64_t targets, const HeadTerm& term, const HeadRows& split, bool backward) {
  if (q.target() == Device::cuda)
    return run_on_cuda(q, loss, g, x, w, labels, targets, term, split, backward);
  const int64_t T = x.dim(0), dim = x.dim(1);
  const int64_t rows = cpu::head_chunk_rows(T, chunk_vocabulary(w, split));
  const int64_t rank = term.x_TR ? term.x_TR.dim(1) : 0;
  int64_t panels = cpu::gemm_scratch(DType::f32, w.dtype(), DType::f32);
  for (const Tensor& t : {term.w_VR, g.dw, g.d_term.w_VR})
    if (t) panels = std::max(panels, cpu::gemm_scratch(DType::f32, t.dtype(), t.dtype()));
  const Buffer logits = q.scratch(DType::f32, {rows, w.dim(0)}, "logits of a chunk");
  const Buffer x_rows = q.scratch(DType::f32, {rows, dim}, "head inputs of a chunk");
  const Buffer dx_rows = q.scratch(DType::f32, {g.dx ? rows : 0, dim}, "head gradients of a chunk");
  const Buffer term_rows = q.scratch(DType::f32, {rows, rank}, "head term of a chunk");
  const Buffer tokens = q.scratch(DType::i32, {rows}, "tokens of a chunk");
  const Buffer losses = q.scratch(DType::f64, {rows}, "losses of a chunk");
  const Buffer space = q.scratch(DType::u8, {panels}, "gemm panels");
  const Buffer stats = scratch_for_stats(q, split, rows);
  if (q.device() == Device::cpu)
    return cpu::head_loss(loss, {x, w, term, g.dx, g.dw, g.d_term}, labels, value_of(g.scale),
                          split,
                          {rows, logits, x_rows, dx_rows, term_rows, tokens, losses, space, stats});
  const int64_t count = targets < 0 ? T : targets;
  only_gather(stats, split, count, cpu::head_chunk_size(count, rows));
}

// Cost of one product of the target tokens with the head.
double product_flops(const Tensor& x, const Tensor& w, int64_t targets) {
  return 2.0 * static_cast<double>(targets < 0 ? x.dim(0) : targets) *
         static_cast<double>(w.numel());
}

// Of the logits, which are written and read once: they are nobody's operand, but the softmax needs
// as long for them as products of few columns do.
double logit_bytes(const Tensor& x, const Tensor& w, int64_t targets) {
  return 2.0 * size_of(DType::f32) * static_cast<double>(targets < 0 ? x.dim(0) : targets) *
         static_cast<double>(w.dim(0));
}

}  // namespace

void head_loss(Queue& q, Tensor loss, Tensor x, Tensor w, Tensor labels, int64_t targets,
               const HeadTerm& term, const HeadRows& rows) {
  check_operands("head_loss", loss, x, w, labels);
  check_rows("head_loss", rows, w);
  double flops = product_flops(x, w, targets);
  if (term.x_TR) {
    check_term("head_loss", "the term", term, x, w);
    flops += product_flops(x, term.w_VR, targets);
  }
  const auto span =
      q.account({"head_loss", OpKind::head},
                {.flops = flops,
                 .bytes = logit_bytes(x, w, targets) + bytes_of({x, w, term.x_TR, term.w_VR})});
  run(q, loss, {}, x, w, labels, targets, term, rows, false);
}

void head_loss_backward(Queue& q, Tensor loss, Tensor dx, Tensor dw, Tensor x, Tensor w,
                        Tensor labels, const Scalar& scale, int64_t targets, const HeadTerm& term,
                        const HeadTerm& d_term, const HeadRows& rows) {
  check_operands("head_loss_backward", loss, x, w, labels);
  check_rows("head_loss_backward", rows, w);
  if (scale.at) check::exact("head_loss_backward", "scale", scale.at, DType::f32, {1});
  if (dx) check::dense("head_loss_backward", "dx", dx, x.shape());
  if (dw) check::dense("head_loss_backward", "dw", dw, w.shape());
  double flops = (1 + (dx ? 1 : 0) + (dw ? 1 : 0)) * product_flops(x, w, targets);
  if (term.x_TR) {
    check_term("head_loss_backward", "the term", term, x, w);
    check_term("head_loss_backward", "the term's gradient", d_term, x, w);
    require(d_term.x_TR.dim(1) == term.x_TR.dim(1), Fault::bug,
            "head_loss_backward: the term has rank {}, its gradient {}", term.x_TR.dim(1),
            d_term.x_TR.dim(1));
    flops += 3 * product_flops(x, term.w_VR, targets);
  }
  const auto span = q.account(
      {"head_loss_backward", OpKind::head},
      {.flops = flops,
       .bytes = logit_bytes(x, w, targets) +
                bytes_of({x, dx, w, dw, dw, term.x_TR, term.w_VR, d_term.x_TR, d_term.w_VR})});
  run(q, loss, {dx, dw, d_term, scale}, x, w, labels, targets, term, rows, true);
}

}  // namespace capstan
