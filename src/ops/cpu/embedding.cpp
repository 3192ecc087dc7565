#include "ops/cpu/embedding.h"

#include <algorithm>
#include <numeric>

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {

namespace {

// Row numbers within the table.
class RowOf {
 public:
  RowOf(const EmbeddingRows& rows, const Tensor& w_VD)
      : first_(rows.first), count_(w_VD.dim(0)), some_(rows.some) {}

  int64_t operator()(int32_t id) const { return id - first_; }
  // Whether the table has the row of this id.
  bool has(int32_t id) const { return !some_ || (id >= first_ && id - first_ < count_); }

 private:
  int64_t first_, count_;
  bool some_;
};

}  // namespace

void embedding(const Tensor& y_TD, const Tensor& w_VD, const Tensor& ids_T,
               const EmbeddingRows& rows) {
  const RowOf row_of(rows, w_VD);
  const int64_t T = y_TD.dim(0), D = y_TD.dim(1);
  const int32_t* ids = ids_T.as<int32_t>();
  with_types(y_TD.dtype(), w_VD.dtype(), [&]<class Y, class W>() {
    Y* const y = y_TD.as<Y>();
    const W* const w = w_VD.as<W>();
    parallel_for(T, grain_of(D), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        Y* const to = y + t * D;
        if (!row_of.has(ids[t])) {
          std::fill_n(to, D, Y(0.0f));
          continue;
        }
        const W* const from = w + row_of(ids[t]) * D;
#pragma omp simd
        for (int64_t d = 0; d < D; ++d) store(to[d], float(from[d]));
      }
    });
  });
}

namespace {

constexpr int64_t kStripe =
    32;  // columns: no two threads write to one cache line, even in two bytes each

// Adds in f32 where dw is f32: in place, token by token.
template <class Y>
void add_in_place(float* dw, const Y* dy, const int32_t* ids, const RowOf& row_of, int64_t T,
                  int64_t D, int64_t begin, int64_t end) {
  for (int64_t t = 0; t < T; ++t) {
    if (!row_of.has(ids[t])) continue;
    float* const to = dw + row_of(ids[t]) * D;
    const Y* const from = dy + t * D;
#pragma omp simd
    for (int64_t d = begin; d < end; ++d) to[d] += float(from[d]);
  }
}

// Sums the tokens of one id in f32 and rounds once: in bf16 a sum of a few hundred values
// would stop growing. `order` has the tokens sorted by id.
template <class W, class Y>
void add_by_id(W* dw, const Y* dy, const int32_t* ids, const RowOf& row_of, const int32_t* order,
               int64_t T, int64_t D, int64_t begin, int64_t end) {
  for (int64_t c0 = begin; c0 < end; c0 += kStripe) {
    const int64_t width = std::min(kStripe, end - c0);
    for (int64_t i = 0; i < T;) {
      const int32_t id = ids[order[i]];
      if (!row_of.has(id)) {
        ++i;
        continue;
      }
      float sum[kStripe] = {};
      for (; i < T && ids[order[i]] == id; ++i) {
        const Y* const from = dy + order[i] * D + c0;
#pragma omp simd
        for (int64_t d = 0; d < width; ++d) sum[d] += float(from[d]);
      }
      W* const to = dw + row_of(id) * D + c0;
#pragma omp simd
      for (int64_t d = 0; d < width; ++d) store(to[d], float(to[d]) + sum[d]);
    }
  }
}

}  // namespace

int64_t embedding_order_size(DType dw, int64_t tokens) {
  return dw == DType::f32 ? 0 : tokens;
}

// Each thread owns some columns and visits all tokens in order, so that repeated ids need no
// synchronization and are summed in the same order for any number of threads.
void embedding_backward(const Tensor& dw_VD, const Tensor& dy_TD, const Tensor& ids_T,
                        const EmbeddingRows& rows, const Tensor& order_T) {
  const RowOf row_of(rows, dw_VD);
  const int64_t T = dy_TD.dim(0), D = dy_TD.dim(1);
  const int32_t* ids = ids_T.as<int32_t>();
  int32_t* order = order_T.as<int32_t>();
  if (dw_VD.dtype() != DType::f32) {
    std::iota(order, order + T, 0);
    std::sort(order, order + T,
              [&](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });
  }
  with_types(dw_VD.dtype(), dy_TD.dtype(), [&]<class W, class Y>() {
    const Y* const dy = dy_TD.as<Y>();
    parallel_for(D, kStripe * grain_of(T * kStripe), [&](int64_t begin, int64_t end) {
      if constexpr (dtype_of<W> == DType::f32)
        add_in_place(dw_VD.as<float>(), dy, ids, row_of, T, D, begin, end);
      else
        add_by_id(dw_VD.as<W>(), dy, ids, row_of, order, T, D, begin, end);
    });
  });
}

}  // namespace capstan::cpu
