#include "ops/thin_term.h"

#include <algorithm>

#include "ops/check.h"

namespace capstan {

void ThinTerms::add(const ThinTerm& term) {
  require(count_ < kMost, Fault::bug, "thin terms: more than {}", kMost);
  require(count_ == 0 || end()[-1].end() <= term.first, Fault::bug,
          "thin terms: one for the columns from {} comes after one that ends at {}", term.first,
          count_ == 0 ? 0 : end()[-1].end());
  terms_[static_cast<size_t>(count_++)] = term;
}

ThinTerms ThinTerms::within(int64_t first, int64_t n) const {
  ThinTerms found;
  for (const ThinTerm& t : *this) {
    const int64_t begin = std::max(first, t.first), end = std::min(first + n, t.end());
    if (begin < end) found.add({t.x_TR, t.w_OR.rows(begin - t.first, end - begin), begin - first});
  }
  return found;
}

Cost ThinTerms::checked_cost(const char* op, const Tensor& y, Cost cost) const {
  for (const ThinTerm& t : *this) {
    check::strided(op, "a term's x", t.x_TR, {y.dim(0), t.w_OR.dim(1)});
    check::dense(op, "a term's w", t.w_OR, {t.w_OR.dim(0), t.w_OR.dim(1)});
    require(t.first >= 0 && t.end() <= y.dim(1), Fault::bug,
            "{}: a term adds to the columns {} to {} of {}", op, t.first, t.end(), y.dim(1));
    cost.flops += 2.0 * static_cast<double>(t.x_TR.numel()) * static_cast<double>(t.w_OR.dim(0));
    cost.bytes += static_cast<double>(t.x_TR.nbytes() + t.w_OR.nbytes());
  }
  return cost;
}

}  // namespace capstan
