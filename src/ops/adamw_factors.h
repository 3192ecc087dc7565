#pragma once

#include <cmath>

#include "ops/optimizer.h"

namespace capstan {

// The factors of an AdamWStep that are equal for all values, computed in double precision.
struct AdamWFactors {
  float beta1, rest1, beta2, rest2, eps, decay, rate, root;

  AdamWFactors() = default;
  explicit AdamWFactors(const AdamWStep& s)
      : beta1(s.beta1),
        rest1(static_cast<float>(1.0 - double{s.beta1})),
        beta2(s.beta2),
        rest2(static_cast<float>(1.0 - double{s.beta2})),
        eps(s.eps),
        decay(static_cast<float>(1.0 - double{s.lr} * double{s.weight_decay})),
        rate(static_cast<float>(s.lr / correction(s.beta1, s.step))),
        root(static_cast<float>(1.0 / std::sqrt(correction(s.beta2, s.step)))) {}

  static double correction(float beta, int64_t step) {
    return 1.0 - std::pow(double{beta}, static_cast<double>(step));
  }
};

}  // namespace capstan
