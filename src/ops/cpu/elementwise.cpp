#include "ops/cpu/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "ops/cpu/types.h"

namespace capstan::cpu {
namespace {

// Threads meet at multiples of the vector length, so that a value is computed in a vector lane or
// alone whatever the number of threads. The two can differ in how products are fused into sums.
constexpr int64_t kGrain = 16384;

// Calls body(begin, end, base, words) on ranges that cover [first, first + n), with the random word
// of value i in words[i - base]. `base` is even: the words of values 2j and 2j + 1 are both there.
template <class Body>
void with_words(const RngKey& key, int64_t first, int64_t n, const Body& body) {
  constexpr int64_t kBlock = 1024;
  const Rng rng(key);
  const int64_t last = first + n, first_block = first / kBlock;
  const int64_t blocks = n > 0 ? (last + kBlock - 1) / kBlock - first_block : 0;
  parallel_for(blocks, 4, [&](int64_t begin_block, int64_t end_block) {
    for (int64_t b = first_block + begin_block; b < first_block + end_block; ++b) {
      uint32_t words[kBlock];
      const int64_t base = b * kBlock;
      const int64_t begin = std::max(first, base), end = std::min(last, base + kBlock);
      for (int64_t i = begin / 4; i < (end + 3) / 4; ++i) {
        const auto four = rng.draws(static_cast<uint64_t>(i));
        std::copy(four.begin(), four.end(), words + 4 * i - base);
      }
      body(begin, end, base, words);
    }
  });
}

// Two independent normal values from two words (Box and Muller).
void normal_pair(float* out, uint32_t a, uint32_t b, float std) {
  const float u = (static_cast<float>(a) + 1.0f) * 0x1p-32f;  // (0, 1]: its logarithm is finite
  const float angle = static_cast<float>(b >> 8) * (0x1p-24f * 6.2831853f);
  const float radius = std * std::sqrt(-2.0f * std::log(u));
  out[0] = radius * std::cos(angle);
  out[1] = radius * std::sin(angle);
}

}  // namespace

void fill(const Tensor& y_, float value) {
  const auto run = [&]<class Y>() {
    Y* const y = y_.as<Y>();
    parallel_for(y_.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, Y(value)); });
  };
  if (y_.dtype() == DType::f64) return run.template operator()<double>();
  with_storage_type(y_.dtype(), run);
}

void cast(const Tensor& y_, const Tensor& x_) {
  with_storage_type(y_.dtype(), [&]<class Y>() {
    with_storage_type(x_.dtype(), [&]<class X>() {
      // One long row, or the rows of a strided matrix.
      const bool dense = y_.contiguous() && x_.contiguous();
      const int64_t rows = dense ? 1 : x_.dim(0), width = dense ? x_.numel() : x_.dim(1);
      parallel_for(rows * width, kGrain, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end;) {
          const int64_t row = at / width, first = at % width;
          const int64_t count = std::min(width - first, end - at);
          Y* const y = y_.as<Y>() + row * y_.stride(0) + first;
          const X* const x = x_.as<X>() + row * x_.stride(0) + first;
#pragma omp simd
          for (int64_t i = 0; i < count; ++i) store(y[i], float(x[i]));
          at += count;
        }
      });
    });
  });
}

void fill_normal(const Tensor& y_, float std, const RngKey& key, int64_t first) {
  with_storage_type(y_.dtype(), [&]<class Y>() {
    Y* const y = y_.as<Y>();
    with_words(key, first, y_.numel(),
               [&](int64_t begin, int64_t end, int64_t base, const uint32_t* words) {
                 for (int64_t even = begin / 2 * 2; even < end; even += 2) {
                   float pair[2];
                   normal_pair(pair, words[even - base], words[even + 1 - base], std);
                   if (even >= begin) store(y[even - first], pair[0]);
                   if (even + 1 < end) store(y[even + 1 - first], pair[1]);
                 }
               });
  });
}

void dropout(const Tensor& y_, const Tensor& x_, float p, const RngKey& key) {
  const float scale = 1.0f / (1.0f - p);
  with_types(y_.dtype(), x_.dtype(), [&]<class Y, class X>() {
    Y* const y = y_.as<Y>();
    const X* const x = x_.as<X>();
    with_words(key, 0, x_.numel(),
               [&](int64_t begin, int64_t end, int64_t base, const uint32_t* words) {
#pragma omp simd
                 for (int64_t i = begin; i < end; ++i) {
                   const float kept = float(x[i]) * scale;
                   const float uniform = static_cast<float>(words[i - base] >> 8) * 0x1p-24f;
                   store(y[i], uniform >= p ? kept : 0.0f);
                 }
               });
  });
}

}  // namespace capstan::cpu
