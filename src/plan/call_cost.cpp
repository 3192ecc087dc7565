#include "plan/call_cost.h"

#include <array>
#include <cmath>
#include <limits>

namespace capstan {
namespace {

constexpr int kTerms = 3;
using Terms = std::array<double, kTerms>;

Terms terms_of(const CallTotal& t) {
  return {t.calls / t.seconds, t.flops / t.seconds, t.bytes / t.seconds};
}

// Solves a[i][j] x[j] = b[i] for the terms whose bit is set in `used`; the others are 0. Gaussian
// elimination with pivots. NaN if the system is singular.
Terms solve(std::array<Terms, kTerms> a, Terms b, unsigned used) {
  std::array<int, kTerms> rows{};
  int n = 0;
  for (int i = 0; i < kTerms; ++i)
    if ((used >> i & 1U) != 0) rows[static_cast<size_t>(n++)] = i;
  const auto at = [&](int r, int c) -> double& {
    return a[static_cast<size_t>(rows[static_cast<size_t>(r)])]
            [static_cast<size_t>(rows[static_cast<size_t>(c)])];
  };
  const auto right = [&](int r) -> double& {
    return b[static_cast<size_t>(rows[static_cast<size_t>(r)])];
  };
  // A normal matrix is positive definite: the diagonal serves as pivots.
  for (int p = 0; p < n; ++p) {
    for (int r = p + 1; r < n; ++r) {
      const double factor = at(r, p) / at(p, p);
      for (int c = p; c < n; ++c) at(r, c) -= factor * at(p, c);
      right(r) -= factor * right(p);
    }
  }
  Terms x{};
  for (int p = n - 1; p >= 0; --p) {
    double sum = right(p);
    for (int c = p + 1; c < n; ++c)
      sum -= at(p, c) * x[static_cast<size_t>(rows[static_cast<size_t>(c)])];
    x[static_cast<size_t>(rows[static_cast<size_t>(p)])] = sum / at(p, p);
  }
  return x;
}

}  // namespace

CallCost fit_call_cost(std::span<const CallTotal> measured) {
  // The terms differ by ten orders of magnitude: scale each by its largest value.
  Terms size{};
  for (const CallTotal& t : measured)
    if (t.seconds > 0)
      for (size_t i = 0; i < kTerms; ++i) size[i] = std::max(size[i], terms_of(t)[i]);
  std::array<Terms, kTerms> normal{};
  Terms right{};
  for (const CallTotal& t : measured) {
    if (!(t.seconds > 0)) continue;
    Terms x = terms_of(t);
    for (size_t i = 0; i < kTerms; ++i) x[i] = size[i] > 0 ? x[i] / size[i] : 0;
    for (size_t i = 0; i < kTerms; ++i) {
      right[i] += x[i];
      for (size_t j = 0; j < kTerms; ++j) normal[i][j] += x[i] * x[j];
    }
  }
  CallCost best;
  double least = std::numeric_limits<double>::infinity();
  // With three terms, try every subset of non-zero terms.
  for (unsigned used = 1; used < 1U << kTerms; ++used) {
    const Terms x = solve(normal, right, used);
    bool feasible = true;
    for (size_t i = 0; i < kTerms; ++i) {
      const bool counts = (used >> i & 1U) != 0;
      feasible = feasible && (!counts || (size[i] > 0 && x[i] >= 0 && std::isfinite(x[i])));
    }
    if (!feasible) continue;
    const CallCost cost = {size[0] > 0 ? x[0] / size[0] : 0, size[1] > 0 ? x[1] / size[1] : 0,
                           size[2] > 0 ? x[2] / size[2] : 0};
    double error = 0;
    for (const CallTotal& t : measured)
      if (t.seconds > 0) error += std::pow(cost.of(t) / t.seconds - 1, 2);
    if (error < least) {
      least = error;
      best = cost;
    }
  }
  return best;
}

}  // namespace capstan
