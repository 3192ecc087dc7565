#include <algorithm>
#include <array>
#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/optimizer.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

// In f64: squares of f32 neither overflow nor underflow, however long the sum.
template <class X>
double sum_of_squares(const X* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += double{float(x[i])} * double{float(x[i])};
  return sum;
}

}  // namespace

void sum_squares(const Tensor& sum, const Tensor& x_) {
  // The chunks depend only on n: equal lengths, at most 64 chunks, summed in order.
  constexpr int64_t kMost = 64, kSmallest = 4096;
  const int64_t n = x_.numel();
  const int64_t length = std::max(kSmallest, (n + kMost - 1) / kMost);
  const int64_t pieces = (n + length - 1) / length;
  std::array<double, kMost> partial{};
  with_type(x_.dtype(), [&]<class X>() {
    const X* const x = x_.as<X>();
    parallel_for(pieces, grain_of(length), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        partial[static_cast<size_t>(i)] =
            sum_of_squares(x + i * length, std::min(length, n - i * length));
    });
  });
  double& total = *sum.as<double>();
  for (int64_t i = 0; i < pieces; ++i) total += partial[static_cast<size_t>(i)];
}

void clip_scale(const Tensor& scale, const Tensor& sum, float max_norm, const Tensor& loss,
                double times) {
  const double squares = *sum.as<double>();
  float& result = *scale.as<float>();
  if (!std::isfinite(squares) || (loss && !std::isfinite(*loss.as<double>())))
    result = NAN;
  else
    result = static_cast<float>(
        std::min(1.0, double{max_norm} / (std::sqrt(squares) / times + 1e-6)) / times);
}

}  // namespace capstan::cpu
