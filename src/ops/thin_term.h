#pragma once

#include <array>

#include "tensor/queue.h"

namespace capstan {

// An adapter's low-rank product, added to some columns of a linear layer's result: y[:, first …
// first + O) += x wᵀ, with few inner columns R. x may have a row stride.
struct ThinTerm {
  Tensor x_TR, w_OR;
  int64_t first = 0;

  int64_t end() const { return first + w_OR.dim(0); }
};

// At most three, in order of their columns, without overlaps.
class ThinTerms {
 public:
  static constexpr int kMost = 3;

  void add(const ThinTerm& term);  // throws Fault::bug for a fourth, or one out of order
  const ThinTerm* begin() const { return terms_.data(); }
  const ThinTerm* end() const { return begin() + count_; }
  int count() const { return count_; }

  // Those (or parts of them) that add to the columns [first, first + n) of y, relative to these
  // columns.
  ThinTerms within(int64_t first, int64_t n) const;
  // Throws Fault::bug for terms that do not fit y. Returns the cost of the layer with them.
  Cost checked_cost(const char* op, const Tensor& y_TO, Cost of_map) const;

 private:
  std::array<ThinTerm, kMost> terms_;
  int count_ = 0;
};

}  // namespace capstan
