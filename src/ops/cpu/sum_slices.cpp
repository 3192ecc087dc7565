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
void sum(const Tensor& y_, std::span<const Tensor> x, Write mode) {
  constexpr int64_t kBlock = 1024;
  T* const y = y_.as<T>();
  parallel_for(y_.numel(), kBlock, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kBlock) {
      Sum sums[kBlock];
      const int64_t n = std::min(kBlock, end - first);
      const auto take = [&](const T* values, bool add) {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sums[i] = (add ? sums[i] : Sum(0)) + Sum(values[first + i]);
      };
      bool add = false;
      if (mode == Write::add) take(y, std::exchange(add, true));
      for (const Tensor& t : x) take(t.as<T>(), std::exchange(add, true));
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

void sum_slices(const Tensor& y, std::span<const Tensor> x, Write mode) {
  if (y.dtype() == DType::f64) return sum<double, double>(y, x, mode);
  with_type(y.dtype(), [&]<class T>() { sum<T, float>(y, x, mode); });
}

}  // namespace capstan::cpu
