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

// The chunks depend only on n: equal lengths, at most 64 chunks, summed in order.
constexpr int64_t kMost = 64, kSmallest = 4096;
int64_t chunk_length(int64_t n) {
  return std::max(kSmallest, (n + kMost - 1) / kMost);
}

void sum_chunks(double* partial, const Tensor& x_) {
  const int64_t n = x_.numel(), length = chunk_length(n), pieces = sum_partials(n);
  with_type(x_.dtype(), [&]<class X>() {
    const X* const x = x_.as<X>();
    parallel_for(pieces, grain_of(length), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        partial[i] = sum_of_squares(x + i * length, std::min(length, n - i * length));
    });
  });
}

void add(const Tensor& sum, const double* partial, int64_t count) {
  double& total = *sum.as<double>();
  for (int64_t i = 0; i < count; ++i) total += partial[i];
}

}  // namespace

int64_t sum_partials(int64_t n) {
  return (n + chunk_length(n) - 1) / chunk_length(n);
}

void sum_squares(const Tensor& sum, const Tensor& x) {
  std::array<double, kMost> partial{};
  sum_chunks(partial.data(), x);
  add(sum, partial.data(), sum_partials(x.numel()));
}

void partial_squares(const Tensor& partials, std::span<const Tensor> all) {
  double* next = partials.as<double>();
  for (const Tensor& x : all) {
    sum_chunks(next, x);
    next += sum_partials(x.numel());
  }
}

void add_partials(const Tensor& sum, const Tensor& partials) {
  add(sum, partials.as<double>(), partials.numel());
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
