#pragma once

#include <algorithm>

#include "ops/cuda/product/gemm.h"
#include "ops/head_loss.h"

namespace capstan::cuda {

struct HeadOperands {
  Tensor x_TD, w_VD;
  HeadTerm term;
  Tensor dx_TD, dw_VD;  // absent if no gradient is needed
  HeadTerm d_term;
};

// Number of tokens whose logits exist at a time: about 64 Mi values, a multiple of the tile size.
// Never decreases with more tokens.
inline int64_t head_chunk_rows(int64_t T, int64_t V) {
  constexpr int64_t kValues = int64_t{1} << 26, kMultiple = 128;
  return std::min(T, std::max(kMultiple, kValues / V / kMultiple * kMultiple));
}

// `order` lists the target tokens in order; x, dx and the term's tensors are gathered by it. If all
// tokens are targets, none of these is used.
struct HeadScratch {
  // [rows, V], in the type of the products of x and w; overwritten by the gradients
  Tensor logits;
  Tensor losses;                           // f64 [T]
  Tensor gemm;                             // u8
  Tensor order;                            // i32 [T + 1]: the last is their count
  Tensor x_RD, dx_RD, term_RR, d_term_RR;  // [rows, …]; empty if the full tensor is absent
  Tensor stats;  // f64: those of all ranks (ops/head_stats.h); absent for one rank
};
inline DType logits_type(const Tensor& x, const Tensor& w) {
  return x.dtype() == w.dtype() ? x.dtype() : DType::f32;
}
inline int64_t head_gemm_scratch(const HeadOperands& p, int64_t rows) {
  const Tensor logits(nullptr, logits_type(p.x_TD, p.w_VD), {rows, p.w_VD.dim(0)});
  int64_t most = 0;
  const auto product = [&](const Tensor& c, const Factor& a, const Factor& b) {
    if (c) most = std::max(most, gemm_scratch(a, b, c));
  };
  const auto some = [&](const Tensor& t) { return t ? t.rows(0, rows) : t; };
  const auto products = [&](const Tensor& x, const Tensor& w, const Tensor& dx, const Tensor& dw) {
    product(logits, {some(x), false}, {w, true});
    product(some(dx), {logits, false}, {w, false});
    product(dw, {logits, true}, {some(x), false});
  };
  products(p.x_TD, p.w_VD, p.dx_TD, p.dw_VD);
  if (p.term.x_TR) products(p.term.x_TR, p.term.w_VR, p.d_term.x_TR, p.d_term.w_VR);
  return most;
}

// Adds the loss; writes the gradients of scale * loss if they are present.
void head_loss(Queue& q, const Tensor& loss, const HeadOperands& p, const Tensor& labels_T,
               int64_t targets, const Scalar& scale, bool backward, const HeadRows& split,
               const HeadScratch& scratch);

// For rows [first, first + logits.dim(0)) of the target tokens: computes losses, and with
// `backward` replaces the logits by their gradients. Rows past the last token give zeros. Without
// an order, all tokens are targets.
void cross_entropy(Queue& q, const Tensor& logits, const Tensor& losses, const Tensor& labels,
                   const Tensor& order, int64_t first, const Scalar& scale, bool backward);
// The same of all ranks together, in two steps: the HeadStats of this rank's logits [n, 3], and
// then losses and gradients by those of all ranks [ranks, n, 3]. Of rows past the last token they
// are zeros.
void head_stats(Queue& q, const Tensor& logits, const Tensor& mine, const Tensor& labels,
                const Tensor& order, int64_t first, const HeadRows& split);
void split_cross_entropy(Queue& q, const Tensor& logits, const Tensor& losses, const Tensor& all,
                         const Tensor& labels, const Tensor& order, int64_t first,
                         const HeadRows& split, const Scalar& scale, bool backward);
void order_targets(Queue& q, const Tensor& order, const Tensor& labels);
// to[r] = from[order[first + r]], zeros past the last token; and the reverse, which does not touch
// rows of other tokens.
void gather_rows(Queue& q, const Tensor& to, const Tensor& from, const Tensor& order,
                 int64_t first);
void scatter_rows(Queue& q, const Tensor& to, const Tensor& from, const Tensor& order,
                  int64_t first);
// sum[0] += Σ losses, in a fixed order.
void add_losses(Queue& q, const Tensor& sum, const Tensor& losses);

}  // namespace capstan::cuda
