#include "ops/cpu/elementwise.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/parallel.h"
#include "ops/cpu/types.h"
#include "ops/cpu/vmath.h"
#include "ops/keep.h"

namespace capstan::cpu {
namespace {

// Threads split at multiples of the vector length, so that whether a value is computed in a vector
// lane or in the scalar remainder does not depend on the number of threads. The two can differ in
// how products are fused into sums.
constexpr int64_t kGrain = 16384;

constexpr int64_t kBlock = 1024;  // random words at a time

// Calls body(begin, end, base, words) on ranges that cover [first, first + n); the random word of
// value i is words[i - base], and all kBlock words from `base` on are valid.
template <class Body>
void with_words(const RngKey& key, int64_t first, int64_t n, const Body& body) {
  const Rng rng(key);
  const int64_t last = first + n, first_block = first / kBlock;
  const int64_t blocks = n > 0 ? (last + kBlock - 1) / kBlock - first_block : 0;
  parallel_for(blocks, 4, [&](int64_t begin_block, int64_t end_block) {
    for (int64_t b = first_block + begin_block; b < first_block + end_block; ++b) {
      uint32_t words[kBlock];
      const int64_t base = b * kBlock;
      const int64_t begin = std::max(first, base), end = std::min(last, base + kBlock);
      rng.words(static_cast<uint64_t>(base / 4), words);
      body(begin, end, base, words);
    }
  });
}

// Calls body(i, half(first + i)) for i in [0, n).
template <class Body>
void with_halves(const RngKey& key, int64_t first, int64_t n, const Body& body) {
  const int64_t last = first + n;
  with_words(key, first / 2, (last + 1) / 2 - first / 2,
             [&](int64_t begin, int64_t end, int64_t base, const uint32_t* words) {
               const int64_t pairs = std::max(begin, (first + 1) / 2),
                             pairs_end = std::min(end, last / 2);
               if (begin < pairs) body(0, words[begin - base] >> 16);
#pragma omp simd
               for (int64_t i = pairs; i < pairs_end; ++i) {
                 body(2 * i - first, words[i - base] & 0xffff);
                 body(2 * i + 1 - first, words[i - base] >> 16);
               }
               if (pairs_end < end) body(n - 1, words[pairs_end - base] & 0xffff);
             });
}

// kBlock normal values from as many words, two from each pair (Box and Muller).
void normal_block(float* out, const uint32_t* words, float std) {
#pragma omp simd
  for (int64_t i = 0; i < kBlock; i += 2) {
    // (0, 1]: the logarithm is finite.
    const float u = (static_cast<float>(words[i]) + 1.0f) * 0x1p-32f;
    const float radius = std * std::sqrt(-2.0f * log_f32(u));
    const SinCos turn = sincos_turns_f32(static_cast<float>(words[i + 1] >> 8) * 0x1p-24f);
    out[i] = radius * turn.cos;
    out[i + 1] = radius * turn.sin;
  }
}

}  // namespace

void fill(const Tensor& y_, float value) {
  const auto run = [&]<class Y>() {
    Y* const y = y_.as<Y>();
    parallel_for(y_.numel(), kGrain,
                 [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, Y(value)); });
  };
  if (y_.dtype() == DType::f64) return run.template operator()<double>();
  with_type(y_.dtype(), run);
}

void cast(const Tensor& y_, const Tensor& x_) {
  with_type(y_.dtype(), [&]<class Y>() {
    with_type(x_.dtype(), [&]<class X>() {
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

void copy(const Tensor& y, const Tensor& x) {
  parallel_for(y.nbytes(), 4 * kGrain, [&](int64_t begin, int64_t end) {
    const auto* const from = static_cast<const std::byte*>(x.raw());
    std::copy(from + begin, from + end, static_cast<std::byte*>(y.raw()) + begin);
  });
}

void fill_normal(const Tensor& y_, float std, const RngKey& key, int64_t first) {
  with_type(y_.dtype(), [&]<class Y>() {
    Y* const y = y_.as<Y>();
    with_words(key, first, y_.numel(),
               [&](int64_t begin, int64_t end, int64_t base, const uint32_t* words) {
                 float normal[kBlock];
                 normal_block(normal, words, std);
#pragma omp simd
                 for (int64_t i = begin; i < end; ++i) store(y[i - first], normal[i - base]);
               });
  });
}

void fill_uniform(const Tensor& y_, float bound, const RngKey& key, int64_t first) {
  with_type(y_.dtype(), [&]<class Y>() {
    Y* const y = y_.as<Y>();
    with_words(key, first, y_.numel(),
               [&](int64_t begin, int64_t end, int64_t base, const uint32_t* words) {
#pragma omp simd
                 for (int64_t i = begin; i < end; ++i) {
                   const float uniform = static_cast<float>(words[i - base] >> 8) * 0x1p-24f;
                   store(y[i - first], bound * (2.0f * uniform - 1.0f));
                 }
               });
  });
}

void add(const Tensor& y_, const Tensor& a_, const Tensor& b_) {
  with_type(y_.dtype(), [&]<class T>() {
    T* const y = y_.as<T>();
    const T *const a = a_.as<T>(), *const b = b_.as<T>();
    parallel_for(y_.numel(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) store(y[i], float(a[i]) + float(b[i]));
    });
  });
}

void scale(const Tensor& y_, const Tensor& x_, float factor) {
  with_types(y_.dtype(), x_.dtype(), [&]<class Y, class X>() {
    Y* const y = y_.as<Y>();
    const X* const x = x_.as<X>();
    parallel_for(x_.numel(), kGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) store(y[i], factor * float(x[i]));
    });
  });
}

void dropout(const Tensor& y_, const Tensor& x_, const DropoutMask& mask, Write mode) {
  const RngKey key =
      mask.key.at ? key_of(mask.key.at.as<int32_t>(), mask.key.value.site) : mask.key.value;
  const Keep keep(mask.p);
  const bool add = mode == Write::add;
  const int64_t T = x_.dim(0), I = x_.dim(1), columns = mask.columns_of(x_);
  const auto ordinal = [&](int64_t t) -> int64_t {
    return mask.ordinals_T ? mask.ordinals_T.as<int32_t>()[t] : t;
  };
  with_types(y_.dtype(), x_.dtype(), [&]<class Y, class X>() {
    for (int64_t t = 0, next = 0; t < T; t = next) {
      // As many rows as lie together in the key's stream.
      next = t + 1;
      while (columns == I && next < T && ordinal(next) == ordinal(next - 1) + 1) ++next;
      Y* const y = y_.as<Y>() + t * I;
      const X* const x = x_.as<X>() + t * I;
      const auto put = [&](int64_t i, uint32_t half) {
        const float kept = half >= keep.least ? float(x[i]) * keep.factor : 0.0f;
        store(y[i], (add ? float(y[i]) : 0.0f) + kept);
      };
      with_halves(key, ordinal(t) * columns + mask.first_column, (next - t) * I, put);
    }
  });
}

}  // namespace capstan::cpu
