#pragma once

#include <optional>

#include "base/rng.h"
#include "ops/optimizer.h"
#include "ops/stochastic_rounding.h"

namespace capstan::cuda {

__device__ inline float stochastic_bf16(float x, uint32_t draw) {
  return __uint_as_float(capstan::stochastic_bf16(__float_as_uint(x), draw));
}

// Replaces the values begin … begin + N - 1 by the bf16 that their draws choose, so that storing is
// exact. `begin` is a multiple of N; N is 1, 4 or 8: the values share one draw of four words.
template <int N>
__device__ inline void round_by(const std::optional<Rng>& rounding, const RoundingPlace& place,
                                int64_t begin, float (&w)[N]) {
  static_assert(N == 1 || N == 4 || N == 8);
  if (!rounding) return;
  const int64_t i = place.of(begin);
  const auto words = rounding->draws(static_cast<uint64_t>(i) / 8);
  if constexpr (N == 1) {
    const uint32_t low = i & 2 ? words[1] : words[0], high = i & 2 ? words[3] : words[2];
    w[0] = stochastic_bf16(w[0], half_of(i & 4 ? high : low, i));
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      uint32_t word = words[k / 2];
      if (N == 4 && (i & 4)) word = words[k / 2 + (N == 4 ? 2 : 0)];
      w[k] = stochastic_bf16(w[k], half_of(word, k));
    }
  }
}

}  // namespace capstan::cuda
