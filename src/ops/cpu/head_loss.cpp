#include "ops/cpu/head_loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/parallel.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vmath.h"

namespace capstan::cpu {
namespace {

// Logits at a time. Larger chunks mean fewer passes over dw; this is where that stops to matter.
constexpr int64_t kChunkBytes = int64_t{48} << 20;

// Exponentials that are summed in f32 before they join a sum in f64. Near-equal terms all round the
// same way: over a vocabulary of 400,000 that costs up to 3e-4 of a token's gradient.
constexpr int64_t kSumBlock = 4096;

// Copies the next rows that count into the chunk, `limit` at most; returns how many, and moves
// `token` on.
int64_t gather(const HeadScratch& s, int64_t limit, const Tensor& x, const int32_t* labels,
               int64_t& token) {
  int32_t* tokens = s.tokens_R.as<int32_t>();
  int64_t rows = 0;
  for (; token < x.dim(0) && rows < limit; ++token)
    if (labels[token] != kIgnore) tokens[rows++] = static_cast<int32_t>(token);
  const int64_t dim = x.dim(1);
  with_type(x.dtype(), [&]<class T>() {
    parallel_for(rows, grain_of(dim), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* in = x.as<T>() + tokens[r] * dim;
        float* out = s.x_RD.as<float>() + r * dim;
#pragma omp simd
        for (int64_t i = 0; i < dim; ++i) out[i] = static_cast<float>(in[i]);
      }
    });
  });
  return rows;
}

// Writes the gradients back to their tokens.
void scatter(const HeadScratch& s, const Tensor& dx, int64_t rows) {
  const int32_t* tokens = s.tokens_R.as<int32_t>();
  const int64_t dim = dx.dim(1);
  with_type(dx.dtype(), [&]<class T>() {
    parallel_for(rows, grain_of(dim), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float* in = s.dx_RD.as<float>() + r * dim;
        T* out = dx.as<T>() + tokens[r] * dim;
#pragma omp simd
        for (int64_t i = 0; i < dim; ++i) store(out[i], in[i]);
      }
    });
  });
}

// Turns a row of logits into scale * (softmax - onehot(label)); returns the loss of the row.
double loss_row(float* logits, int64_t vocab, int32_t label, float scale, bool gradient) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < vocab; ++i) top = std::max(top, logits[i]);
  const float target = logits[label];
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
  if (gradient) {
    const float factor = scale / static_cast<float>(sum);
#pragma omp simd
    for (int64_t i = 0; i < vocab; ++i) logits[i] *= factor;
    logits[label] -= scale;
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

}  // namespace

int64_t head_chunk_rows(int64_t tokens, int64_t vocab) {
  const int64_t fitting = kChunkBytes / (vocab * static_cast<int64_t>(sizeof(float)));
  return std::min(tokens, std::max<int64_t>(16, fitting / 16 * 16));
}

void head_loss(Tensor loss, Tensor dx, Tensor dw, Tensor x, Tensor w, Tensor labels, float scale,
               const HeadScratch& s) {
  const int32_t* label_of = labels.as<int32_t>();
  const int64_t vocab = w.dim(0), dim = w.dim(1);
  float* logits = s.logits_RV.as<float>();
  const auto gradient = static_cast<bool>(dx);
  if (gradient) zero_ignored(dx, label_of);

  // Chunks of about the same size: a short last one would be a slow product.
  const int64_t targets = x.dim(0) - std::count(label_of, label_of + x.dim(0), kIgnore);
  if (targets == 0) return;
  const int64_t chunks = (targets + s.rows - 1) / s.rows;
  const int64_t limit = std::min(s.rows, ((targets + chunks - 1) / chunks + 15) / 16 * 16);
  for (int64_t token = 0; token < x.dim(0);) {
    const int64_t rows = gather(s, limit, x, label_of, token);
    gemm(rows, vocab, dim, matrix(s.x_RD), matrix(w, true), logits, DType::f32, vocab, false,
         s.panels.raw());
    double* losses = s.losses_R.as<double>();
    parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        losses[r] = loss_row(logits + r * vocab, vocab, label_of[s.tokens_R.as<int32_t>()[r]],
                             scale, gradient);
    });
    for (int64_t r = 0; r < rows; ++r) *loss.as<double>() += losses[r];
    if (!gradient || rows == 0) continue;
    gemm(rows, dim, vocab, matrix(s.logits_RV), matrix(w), s.dx_RD.raw(), DType::f32, dim, false,
         s.panels.raw());
    gemm(vocab, dim, rows, matrix(s.logits_RV, true), matrix(s.x_RD), dw.raw(), dw.dtype(), dim,
         true, s.panels.raw());
    scatter(s, dx, rows);
  }
}

}  // namespace capstan::cpu
