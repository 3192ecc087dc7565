#pragma once

#include "ops/cuda/product/gemm.h"
#include "ops/linear.h"

namespace capstan::cuda {

// The products of the three ops, to size their scratch and to compute them.
inline Factor plain(const Tensor& t) {
  return {t, false};
}
inline Factor flipped(const Tensor& t) {
  return {t, true};
}

inline void linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                   Write mode, float factor, const Tensor& scratch) {
  gemm(q, y, plain(x), flipped(w), b, mode == Write::add, scratch, factor);
}
inline void linear(Queue& q, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                   const ThinTerms& terms, const Tensor& scratch) {
  gemm(q, y, plain(x), flipped(w), b, terms, scratch);
}
inline void linear_backward_data(Queue& q, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                 Write mode, float factor, const Tensor& scratch) {
  gemm(q, dx, plain(dy), plain(w), {}, mode == Write::add, scratch, factor);
}
inline void linear_backward_weight(Queue& q, const Tensor& dw, const Tensor& db, const Tensor& dy,
                                   const Tensor& x, Write mode, const Tensor& scratch) {
  gemm(q, dw, flipped(dy), plain(x), {}, mode == Write::add, scratch);
  if (db) bias_backward(q, db, dy, static_cast<std::byte*>(scratch.raw()));
}

}  // namespace capstan::cuda
