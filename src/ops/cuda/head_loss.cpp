#include "ops/cuda/head_loss.h"

#include "ops/cuda/elementwise.h"
#include "ops/cuda/product/linear.h"
#include "ops/head_stats.h"

namespace capstan::cuda {
namespace {

// One operand with a row per token: gathers the rows of a chunk, and scatters them back.
class Rows {
 public:
  Rows(const Tensor& whole, const Tensor& chunk, const Tensor& order)
      : whole_(whole), chunk_(chunk), order_(order) {}

  Tensor read(Queue& q, int64_t first, int64_t n) const {
    const Tensor rows = place(first, n);
    if (rows && order_) gather_rows(q, rows, whole_, order_, first);
    return rows;
  }
  Tensor place(int64_t first, int64_t n) const {
    if (!whole_) return {};
    return order_ ? chunk_.rows(0, n) : whole_.rows(first, n);
  }
  void written(Queue& q, int64_t first, int64_t n) const {
    if (whole_ && order_) scatter_rows(q, whole_, chunk_.rows(0, n), order_, first);
  }

 private:
  Tensor whole_, chunk_, order_;
};

}  // namespace

void head_loss(Queue& q, const Tensor& loss, const HeadOperands& p, const Tensor& labels,
               int64_t targets, const Scalar& scale, bool backward, const HeadRows& split,
               const HeadScratch& s) {
  const int64_t T = p.x_TD.dim(0), rows = s.logits.dim(0);
  const Tensor order = targets == T ? Tensor() : s.order;
  const int64_t count = targets < 0 ? T : targets;
  if (order) {
    order_targets(q, order, labels);
    for (const Tensor& t : {p.dx_TD, p.d_term.x_TR})
      if (t && backward) cuda::fill(q, t, 0);
  }
  const Rows x_rows(p.x_TD, s.x_RD, order), dx_rows(p.dx_TD, s.dx_RD, order);
  const Rows term_rows(p.term.x_TR, s.term_RR, order);
  const Rows d_term_rows(p.d_term.x_TR, s.d_term_RR, order);
  for (int64_t first = 0; first < count; first += rows) {
    const int64_t n = std::min(rows, count - first);
    const Tensor logits = s.logits.rows(0, n), x = x_rows.read(q, first, n);
    const Tensor term = term_rows.read(q, first, n);
    gemm(q, logits, plain(x), flipped(p.w_VD), {}, false, s.gemm);
    if (term) gemm(q, logits, plain(term), flipped(p.term.w_VR), {}, true, s.gemm);
    if (split.ranks == 1) {
      cross_entropy(q, logits, s.losses, labels, order, first, scale, backward);
    } else {
      const auto [all, mine] = head_stats_of_chunk(s.stats, split.rank, split.ranks, n);
      head_stats(q, logits, mine, labels, order, first, split);
      split.gather(all, mine);
      split_cross_entropy(q, logits, s.losses, all, labels, order, first, split, scale, backward);
    }
    if (!backward) continue;
    if (p.dx_TD) gemm(q, dx_rows.place(first, n), plain(logits), plain(p.w_VD), {}, false, s.gemm);
    if (p.dw_VD) gemm(q, p.dw_VD, flipped(logits), plain(x), {}, true, s.gemm);
    dx_rows.written(q, first, n);
    if (!term) continue;
    gemm(q, d_term_rows.place(first, n), plain(logits), plain(p.term.w_VR), {}, false, s.gemm);
    gemm(q, p.d_term.w_VR, flipped(logits), plain(term), {}, true, s.gemm);
    d_term_rows.written(q, first, n);
  }
  if (count > 0 && split.rank == 0) add_losses(q, loss, s.losses.rows(0, count));
}

}  // namespace capstan::cuda
