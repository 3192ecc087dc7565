#include "ops/cpu/head_loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/parallel.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vmath.h"
#include "ops/head_stats.h"

namespace capstan::cpu {
namespace {

// Logits per chunk. Larger chunks mean fewer passes over dw; beyond this size that no longer
// matters.
constexpr int64_t kChunkBytes = int64_t{48} << 20;

// Number of exponentials summed in f32 before they are added to a sum in f64. Near-equal terms all
// round the same way: over a vocabulary of 400,000 that costs up to 3e-4 of a token's gradient.
constexpr int64_t kSumBlock = 4096;

// Collects the next target tokens, at most `limit`; returns how many, and advances `token`.
int64_t choose(const HeadScratch& s, int64_t limit, const int32_t* labels, int64_t tokens,
               int64_t& token) {
  int64_t rows = 0;
  for (; token < tokens && rows < limit; ++token)
    if (labels[token] != kIgnore) s.tokens_R.as<int32_t>()[rows++] = static_cast<int32_t>(token);
  return rows;
}

// Copies the chunk's rows of x.
void gather(const Tensor& out_RD, const HeadScratch& s, const Tensor& x, int64_t rows) {
  const int32_t* tokens = s.tokens_R.as<int32_t>();
  const int64_t dim = x.dim(1);
  with_type(x.dtype(), [&]<class T>() {
    parallel_for(rows, grain_of(dim), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = x.as<T>() + tokens[r] * dim;
        float* out = out_RD.as<float>() + r * dim;
#pragma omp simd
        for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(in[i]);
      }
    });
  });
}

// Writes the gradients back to their tokens.
void scatter(const Tensor& dx, const HeadScratch& s, const Tensor& dx_RD, int64_t rows) {
  const int32_t* tokens = s.tokens_R.as<int32_t>();
  const int64_t dim = dx.dim(1);
  with_type(dx.dtype(), [&]<class T>() {
    parallel_for(rows, grain_of(dim), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* in = dx_RD.as<float>() + r * dim;
        T* out = dx.as<T>() + tokens[r] * dim;
#pragma omp simd
        for (int64_t i = 0; i < dim; ++i) store(out[i], in[i]);
      }
    });
  });
}

struct MaxSum {
  float top;
  double sum;  // Σ exp(logit - top)
};
// Replaces a row of logits by the exponentials.
MaxSum exponentials(float* logits, int64_t vocab) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < vocab; ++i) top = std::max(top, logits[i]);
  double sum = 0;
  for (int64_t begin = 0; begin < vocab; begin += kSumBlock) {
    const int64_t end = std::min(vocab, begin + kSumBlock);
    float part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = begin; i < end; ++i) {
      logits[i] = exp_f32(logits[i] - top);
      part += logits[i];
    }
    sum += part;
  }
  return {top, sum};
}

void scale_row(float* row, int64_t vocab, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < vocab; ++i) row[i] *= factor;
}

// Turns a row of logits into scale * (softmax - onehot(label)); returns the loss of the row.
double loss_row(float* logits, int64_t vocab, int32_t label, float scale, bool gradient) {
  const float target = logits[label];
  const auto [top, sum] = exponentials(logits, vocab);
  if (gradient) {
    scale_row(logits, vocab, scale / static_cast<float>(sum));
    logits[label] -= scale;
  }
  return std::log(sum) + top - target;
}

// The same of all ranks together, in two steps. `label` is a column of this rank's logits, or
// another rank has it. The first step leaves exponentials …
HeadStats stats_row(float* logits, int64_t vocab, int64_t label) {
  const double target = label >= 0 && label < vocab ? double{logits[label]} : 0;
  const auto [top, sum] = exponentials(logits, vocab);
  return {double{top}, sum, target};
}

// … and the second one gradients. The ranks' numbers of this token are n apart; they are joined in
// the order of the ranks, so that all ranks have the same bits.
double joined_row(float* row, int64_t vocab, int64_t label, const HeadStats* all, int64_t n,
                  const HeadRows& split, float scale, bool gradient) {
  double top = all[0].top, sum = 0, target = 0;
  for (int i = 1; i < split.ranks; ++i) top = std::max(top, all[i * n].top);
  for (int i = 0; i < split.ranks; ++i) {
    const HeadStats& part = all[i * n];
    // The last term is 0, or NaN if the top is not finite.
    sum += part.sum * std::exp(part.top - top) + (part.top - part.top);
    target += part.target;
  }
  if (gradient) {
    const double mine = std::exp(all[split.rank * n].top - top);
    scale_row(row, vocab, static_cast<float>(double{scale} * mine / sum));
    if (label >= 0 && label < vocab) row[label] -= scale;
  }
  return std::log(sum) + top - target;
}

void zero_ignored(const Tensor& dx, const int32_t* labels) {
  const int64_t row_bytes = dx.dim(1) * size_of(dx.dtype());
  for (int64_t t = 0; t < dx.dim(0); ++t)
    if (labels[t] == kIgnore)
      std::memset(static_cast<std::byte*>(dx.raw()) + t * row_bytes, 0,
                  static_cast<size_t>(row_bytes));
}

// dx = d_logits w and dw += d_logitsᵀ x for the chunk; overwrites x_RD if dx_RD is the same.
void backward(const HeadScratch& s, int64_t rows, const Tensor& x_RD, const Tensor& dx_RD,
              const Tensor& w, const Tensor& dx, const Tensor& dw) {
  const int64_t vocab = w.dim(0), dim = w.dim(1);
  if (dw)
    gemm(vocab, dim, rows, matrix(s.logits_RV, true), matrix(x_RD), dw.raw(), dw.dtype(), dim, true,
         s.panels.raw());
  if (!dx) return;
  gemm(rows, dim, vocab, matrix(s.logits_RV), matrix(w), dx_RD.raw(), DType::f32, dim, false,
       s.panels.raw());
  scatter(dx, s, dx_RD, rows);
}

// Turns the chunk's logits into gradients, if they are wanted, and finds the losses.
void losses_of_chunk(const HeadScratch& s, int64_t rows, const int32_t* labels, float scale,
                     const HeadRows& split, bool gradient) {
  const int64_t vocab = s.logits_RV.dim(1);
  double* const losses = s.losses_R.as<double>();
  const auto for_each = [&](const auto& body) {
    parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        body(r, s.logits_RV.as<float>() + r * vocab, labels[s.tokens_R.as<int32_t>()[r]]);
    });
  };
  if (split.ranks == 1)
    return for_each([&](int64_t r, float* logits, int32_t label) {
      losses[r] = loss_row(logits, vocab, label, scale, gradient);
    });
  const auto [all, mine] = head_stats_of_chunk(s.stats, split.rank, split.ranks, rows);
  auto* const to = reinterpret_cast<HeadStats*>(mine.as<double>());
  for_each([&](int64_t r, float* logits, int32_t label) {
    to[r] = stats_row(logits, vocab, label - split.first);
  });
  split.gather(all, mine);
  const auto* const from = reinterpret_cast<const HeadStats*>(all.as<double>());
  for_each([&](int64_t r, float* row, int32_t label) {
    losses[r] = joined_row(row, vocab, label - split.first, from + r, rows, split, scale, gradient);
  });
}

}  // namespace

int64_t head_chunk_rows(int64_t tokens, int64_t vocab) {
  const int64_t fitting = kChunkBytes / (vocab * static_cast<int64_t>(sizeof(float)));
  return std::min(tokens, std::max<int64_t>(16, fitting / 16 * 16));
}

int64_t head_chunk_size(int64_t targets, int64_t rows) {
  if (targets == 0) return rows;
  const int64_t chunks = (targets + rows - 1) / rows;
  return std::min(rows, ((targets + chunks - 1) / chunks + 15) / 16 * 16);
}

void head_loss(Tensor loss, const HeadOperands& o, Tensor labels, float scale,
               const HeadRows& split, const HeadScratch& s) {
  const int32_t* label_of = labels.as<int32_t>();
  const int64_t tokens = o.x.dim(0), vocab = o.w.dim(0);
  float* logits = s.logits_RV.as<float>();
  const bool gradient = o.dx || o.dw || o.d_term.x_TR;
  for (const Tensor& dx : {o.dx, o.d_term.x_TR})
    if (dx) zero_ignored(dx, label_of);

  const int64_t targets = tokens - std::count(label_of, label_of + tokens, kIgnore);
  if (targets == 0) return;
  const int64_t limit = head_chunk_size(targets, s.rows);
  const auto add_product = [&](int64_t rows, const Tensor& x_RD, const Tensor& w, bool add) {
    gemm(rows, vocab, w.dim(1), matrix(x_RD), matrix(w, true), logits, DType::f32, vocab, add,
         s.panels.raw());
  };
  for (int64_t token = 0; token < tokens;) {
    const int64_t rows = choose(s, limit, label_of, tokens, token);
    if (rows == 0) break;  // the rest is ignored
    gather(s.x_RD, s, o.x, rows);
    add_product(rows, s.x_RD, o.w, false);
    if (o.term.x_TR) {
      gather(s.term_RK, s, o.term.x_TR, rows);
      add_product(rows, s.term_RK, o.term.w_VR, true);
    }
    losses_of_chunk(s, rows, label_of, scale, split, gradient);
    if (split.rank == 0)
      for (int64_t r = 0; r < rows; ++r) *loss.as<double>() += s.losses_R.as<double>()[r];
    if (!gradient) continue;
    backward(s, rows, s.x_RD, s.dx_RD, o.w, o.dx, o.dw);
    if (o.term.x_TR)
      backward(s, rows, s.term_RK, s.term_RK, o.term.w_VR, o.d_term.x_TR, o.d_term.w_VR);
  }
}

}  // namespace capstan::cpu
