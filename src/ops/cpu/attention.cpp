#include "ops/cpu/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "ops/cpu/blas.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vmath.h"

// Processes kRows queries at a time against all their visible keys, with a strip of kRows x keys
// scores per thread. So memory is linear in the length, the softmax of a row is exact in one pass,
// and the products are large enough for OpenBLAS. The part of the strip right of the diagonal is at
// most kRows wide.
namespace capstan::cpu {
namespace {

constexpr int64_t kRows = 64;

// One head of one document: rows of `dim` values.
struct Head {
  Tensor tensor;  // [T, heads, dim] with strides
  int64_t first_row = 0;
  int64_t head = 0;

  int64_t offset(int64_t row) const {
    return (first_row + row) * tensor.stride(0) + head * tensor.stride(1);
  }
  int64_t dim() const { return tensor.dim(2); }
};

// The rows as f32: in place, or converted into `panel`.
MatrixF32 load(const Head& h, int64_t row, int64_t rows, float* panel) {
  if (h.tensor.dtype() == DType::f32)
    return {h.tensor.as<float>() + h.offset(row), h.tensor.stride(0)};
  const int64_t dim = h.dim();
  with_type(h.tensor.dtype(), [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      const T* in = h.tensor.as<T>() + h.offset(row + r);
#pragma omp simd
      for (int64_t i = 0; i < dim; ++i) panel[r * dim + i] = static_cast<float>(in[i]);
    }
  });
  return {panel, dim};
}

void store_rows(const Head& h, int64_t row, int64_t rows, const float* values) {
  const int64_t dim = h.dim();
  with_type(h.tensor.dtype(), [&]<class T>() {
    for (int64_t r = 0; r < rows; ++r) {
      T* out = h.tensor.as<T>() + h.offset(row + r);
#pragma omp simd
      for (int64_t i = 0; i < dim; ++i) store(out[i], values[r * dim + i]);
    }
  });
}

// The keys [first, last) that at least one query of a strip sees. Query row r of the strip is at
// position `position` + r.
struct Strip {
  int64_t position, rows, first, last, window;

  Strip(int64_t at, int64_t count, int64_t window_size)
      : position(at), rows(count), first(0), last(at + count), window(window_size) {
    if (window > 0) first = std::max<int64_t>(0, position - window + 1);
  }
  int64_t keys() const { return last - first; }
  // For row r, relative to `first`: it sees [begin(r), end(r)).
  int64_t begin(int64_t r) const {
    return window > 0 ? std::max<int64_t>(0, position + r - window + 1 - first) : 0;
  }
  int64_t end(int64_t r) const { return position + r + 1 - first; }
};

// Turns a row of scaled scores into probabilities; masked ones become 0. Returns the log of the sum
// of exponentials.
float softmax_row(float* s, int64_t begin, int64_t end, int64_t keys) {
  float top = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : top)
  for (int64_t i = begin; i < end; ++i) top = std::max(top, s[i]);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = begin; i < end; ++i) {
    s[i] = exp_f32(s[i] - top);
    sum += s[i];
  }
  const float inverse = 1 / sum;
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) s[i] *= inverse;
  std::fill(s, s + begin, 0.0f);
  std::fill(s + end, s + keys, 0.0f);
  return top + std::log(sum);
}

// Scratch of one thread in the forward pass, cut from one array of floats.
struct ForwardPanels {
  float *scores, *out, *q, *k, *v;

  static int64_t floats(int64_t keys, int64_t dim, DType dtype) {
    const int64_t widened = dtype == DType::f32 ? 0 : (kRows + 2 * keys) * dim;
    return kRows * keys + kRows * dim + widened;
  }
  ForwardPanels(float* base, int64_t keys, int64_t dim)
      : scores(base),
        out(scores + kRows * keys),
        q(out + kRows * dim),
        k(q + kRows * dim),
        v(k + keys * dim) {}
};

struct Sequence {
  int64_t queries = 0;
  int64_t start = 0;  // position of the first query among the keys
  int64_t window = 0;
};

// One head of one document; lse, if present, has one value per query.
void attend(const Head& o, float* lse, const Head& q, const Head& k, const Head& v,
            const Sequence& s, float scale, const ForwardPanels& p) {
  const int64_t dim = q.dim(), keys = s.start + s.queries;
  const MatrixF32 k_all = load(k, 0, keys, p.k), v_all = load(v, 0, keys, p.v);
  for (int64_t row = 0; row < s.queries; row += kRows) {
    const Strip strip(s.start + row, std::min(kRows, s.queries - row), s.window);
    const int64_t n = strip.keys();
    const MatrixF32 k_seen{k_all.data + strip.first * k_all.row_stride, k_all.row_stride, true};
    const MatrixF32 v_seen{v_all.data + strip.first * v_all.row_stride, v_all.row_stride, false};
    sgemm(strip.rows, n, dim, scale, load(q, row, strip.rows, p.q), k_seen, 0, p.scores, n);
    for (int64_t r = 0; r < strip.rows; ++r) {
      const float log_sum = softmax_row(p.scores + r * n, strip.begin(r), strip.end(r), n);
      if (lse != nullptr) lse[row + r] = log_sum;
    }
    sgemm(strip.rows, dim, n, 1, {p.scores, n}, v_seen, 0, p.out, dim);
    store_rows(o, row, strip.rows, p.out);
  }
}

struct BackwardPanels {
  float *p, *dp, *dq, *dk, *dv, *q, *d_o, *k, *v;

  static int64_t floats(int64_t keys, int64_t dim, DType dtype) {
    const int64_t widened = dtype == DType::f32 ? 0 : 2 * (kRows + keys) * dim;
    return 2 * kRows * keys + kRows * dim + 2 * keys * dim + widened;
  }
  BackwardPanels(float* base, int64_t keys, int64_t dim)
      : p(base),
        dp(p + kRows * keys),
        dq(dp + kRows * keys),
        dk(dq + kRows * dim),
        dv(dk + keys * dim),
        q(dv + keys * dim),
        d_o(q + kRows * dim),
        k(d_o + kRows * dim),
        v(k + keys * dim) {}
};

float dot_row(const Head& a, const Head& b, int64_t row) {
  float sum = 0;
  with_type(a.tensor.dtype(), [&]<class T>() {
    const T* x = a.tensor.as<T>() + a.offset(row);
    const T* y = b.tensor.as<T>() + b.offset(row);
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < a.dim(); ++i)
      sum += static_cast<float>(x[i]) * static_cast<float>(y[i]);
  });
  return sum;
}

// p: scaled scores, becomes probabilities. dp: gradient of the probabilities, becomes the gradient
// of the unscaled scores.
void softmax_backward_row(float* p, float* dp, int64_t begin, int64_t end, int64_t keys, float lse,
                          float delta, float scale) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    p[i] = exp_f32(p[i] - lse);
    dp[i] = p[i] * (dp[i] - delta) * scale;
  }
  for (float* row : {p, dp}) {
    std::fill(row, row + begin, 0.0f);
    std::fill(row + end, row + keys, 0.0f);
  }
}

// One query head: writes dq, adds to the dk and dv panels.
void attend_backward(const Head& dq, const Head& d_o, const Head& o, const float* lse,
                     const Head& q, const MatrixF32& k_all, const MatrixF32& v_all,
                     const Sequence& s, float scale, const BackwardPanels& w) {
  const int64_t dim = q.dim();
  for (int64_t row = 0; row < s.queries; row += kRows) {
    const Strip strip(row, std::min(kRows, s.queries - row), s.window);
    const int64_t n = strip.keys(), rows = strip.rows;
    const MatrixF32 k_seen{k_all.data + strip.first * k_all.row_stride, k_all.row_stride};
    const MatrixF32 v_seen{v_all.data + strip.first * v_all.row_stride, v_all.row_stride};
    const MatrixF32 q_rows = load(q, row, rows, w.q), do_rows = load(d_o, row, rows, w.d_o);
    sgemm(rows, n, dim, scale, q_rows, transpose(k_seen), 0, w.p, n);
    sgemm(rows, n, dim, 1, do_rows, transpose(v_seen), 0, w.dp, n);
    for (int64_t r = 0; r < rows; ++r)
      softmax_backward_row(w.p + r * n, w.dp + r * n, strip.begin(r), strip.end(r), n, lse[row + r],
                           dot_row(d_o, o, row + r), scale);
    sgemm(n, dim, rows, 1, {w.p, n, true}, do_rows, 1, w.dv + strip.first * dim, dim);
    sgemm(n, dim, rows, 1, {w.dp, n, true}, q_rows, 1, w.dk + strip.first * dim, dim);
    sgemm(rows, dim, n, 1, {w.dp, n}, k_seen, 0, w.dq, dim);
    store_rows(dq, row, rows, w.dq);  // last: dq may alias q
  }
}

float* slot(Tensor scratch, int thread, int64_t floats) {
  return reinterpret_cast<float*>(scratch.as<uint8_t>()) + thread * floats;
}

}  // namespace

int64_t attention_scratch(int64_t keys, int64_t head_dim, DType dtype) {
  return num_threads() * ForwardPanels::floats(keys, head_dim, dtype) * int64_t{sizeof(float)};
}

int64_t attention_backward_scratch(int64_t keys, int64_t head_dim, DType dtype) {
  return num_threads() * BackwardPanels::floats(keys, head_dim, dtype) * int64_t{sizeof(float)};
}

void attention(Tensor o, Tensor lse, Tensor q, Tensor k, Tensor v, const AttentionMask& mask,
               float scale, Tensor scratch) {
  blas();
  const int64_t heads = q.dim(1), group = heads / k.dim(1), dim = q.dim(2), tokens = q.dim(0);
  const int32_t* starts = mask.starts.as<int32_t>();
  const int64_t floats = ForwardPanels::floats(mask.longest, dim, q.dtype());
  parallel_tasks(mask.documents * heads, [&](int64_t task, int thread) {
    const int64_t doc = task / heads, h = task % heads, first = starts[doc];
    const Sequence sequence{starts[doc + 1] - first, 0, mask.window};
    attend({o, first, h}, lse.as<float>() + h * tokens + first, {q, first, h},
           {k, first, h / group}, {v, first, h / group}, sequence, scale,
           ForwardPanels(slot(scratch, thread, floats), mask.longest, dim));
  });
}

void attention_backward(Tensor dq, Tensor dk, Tensor dv, Tensor d_o, Tensor o, Tensor lse, Tensor q,
                        Tensor k, Tensor v, const AttentionMask& mask, float scale,
                        Tensor scratch) {
  blas();
  const int64_t kv_heads = k.dim(1), group = q.dim(1) / kv_heads, dim = q.dim(2);
  const int64_t tokens = q.dim(0);
  const int32_t* starts = mask.starts.as<int32_t>();
  const int64_t floats = BackwardPanels::floats(mask.longest, dim, q.dtype());
  // One task per key head: its query heads add to the same dk and dv, one after the other.
  parallel_tasks(mask.documents * kv_heads, [&](int64_t task, int thread) {
    const int64_t doc = task / kv_heads, kv = task % kv_heads, first = starts[doc];
    const int64_t length = starts[doc + 1] - first;
    const BackwardPanels w(slot(scratch, thread, floats), mask.longest, dim);
    std::fill(w.dk, w.dk + length * dim, 0.0f);
    std::fill(w.dv, w.dv + length * dim, 0.0f);
    const MatrixF32 k_all = load({k, first, kv}, 0, length, w.k);
    const MatrixF32 v_all = load({v, first, kv}, 0, length, w.v);
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
      attend_backward({dq, first, h}, {d_o, first, h}, {o, first, h},
                      lse.as<float>() + h * tokens + first, {q, first, h}, k_all, v_all,
                      {length, 0, mask.window}, scale, w);
    store_rows({dk, first, kv}, 0, length, w.dk);
    store_rows({dv, first, kv}, 0, length, w.dv);
  });
}

void attention_cached(Tensor o, Tensor q, Tensor k, Tensor v, int64_t start, int64_t window,
                      float scale, Tensor scratch) {
  blas();
  const int64_t heads = q.dim(1), group = heads / k.dim(1), dim = q.dim(2);
  const int64_t keys = k.dim(0), floats = ForwardPanels::floats(keys, dim, q.dtype());
  parallel_tasks(heads, [&](int64_t h, int thread) {
    attend({o, 0, h}, nullptr, {q, 0, h}, {k, 0, h / group}, {v, 0, h / group},
           {q.dim(0), start, window}, scale,
           ForwardPanels(slot(scratch, thread, floats), keys, dim));
  });
}

}  // namespace capstan::cpu
