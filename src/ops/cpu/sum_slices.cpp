#include "ops/cpu/sum_slices.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

// One block of values at a time, so that the sums stay in cache.
template <class T, class Sum>
void sum(const Tensor& y_, std::span<const Tensor> x, Write mode, int groups) {
  constexpr int64_t kBlock = 1024;
  T* const y = y_.as<T>();
  const size_t each = x.size() / static_cast<size_t>(groups);
  parallel_for(y_.numel(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock) {
      Sum sums[kBlock], part[kBlock];
      const int64_t n = std::min(kBlock, end - first);
      const auto take = [&](Sum* to, const auto* values, bool add, Sum zero = 0) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) to[i] = (add ? to[i] : zero) + Sum(values[i]);
      };
      bool add = false;
      if (mode == Write::add) take(sums, y + first, std::exchange(add, true));
      for (size_t s = 0; s < x.size(); ++s) {
        const T* const values = x[s].as<T>() + first;
        if (groups == 1) {
          take(sums, values, std::exchange(add, true));
        } else {
          take(part, values, s % each > 0, Sum(-0.0));
          if ((s + 1) % each == 0) take(sums, part, std::exchange(add, true));
        }
      }
      if constexpr (std::is_same_v<T, double>) {
        std::copy_n(sums, n, y + first);
      } else {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) store(y[first + i], sums[i]);
      }
    }
  });
}

}  // namespace

void sum_slices(const Tensor& y, std::span<const Tensor> x, Write mode, int groups) {
  if (y.dtype() == DType::f64) return sum<double, double>(y, x, mode, groups);
  with_type(y.dtype(), [&]<class T>() { sum<T, float>(y, x, mode, groups); });
}

}  // namespace capstan::cpu
