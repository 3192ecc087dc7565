#pragma once

#include "ops/cuda/attention/attention_rows.cuh"
#include "ops/cuda/attention/attention_softmax.cuh"
#include "ops/cuda/product/wgmma.cuh"

// Accumulates a tile of queries into the gradients of a tile of keys and values.
namespace capstan::cuda {

// A thread's two keys, and the queries that see them: from the key itself up to its `last`.
struct KeyRows {
  int begin, earliest;  // of the tile: its first key, and that key's last query
  int rows[2], last[2];

  // Zeros for queries that do not see a key. Only tiles at either end of the visible range have
  // any.
  __device__ void hide(float (&p)[kColumns][4], int query) const {
    if (query >= begin + kTile && query + kTile <= earliest) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = query + column_of(j, i);
        if (column < rows[i / 2] || column >= last[i / 2]) p[j][i] = 0;
      }
  }
};

// Scores are computed transposed, so that rows are keys. log_sums and shifts are lse and delta of
// the queries, which begin at `query`. `meanwhile` runs during the first products. The last
// products may still run at the end: call finish_products before queries and gradients change.
template <int kDim, class Meanwhile>
__device__ __forceinline__ void add_key_gradients(
    float (&key_sums)[kDim / 8][4], float (&value_sums)[kDim / 8][4], const Tile<kDim>& keys,
    const Tile<kDim>& values, const Tile<kDim>& queries, const Tile<kDim>& gradients,
    const float (&log_sums)[kTile], const float (&shifts)[kTile], int query, const KeyRows& rows,
    float scale, const Meanwhile& meanwhile) {
  float p[kColumns][4], d[kColumns][4];
  begin_products();
  multiply_rows(p, keys, queries);
  end_products();
  multiply_rows(d, values, gradients);
  end_products();
  meanwhile();
  finish_products<1>();
  settled(p);
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const auto log_sum = *reinterpret_cast<const float2*>(&log_sums[column_of(j, 0)]);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      p[j][i] = power_of_two(fmaf(p[j][i], scale, -kLog2e * (i % 2 == 0 ? log_sum.x : log_sum.y)));
  }
  rows.hide(p, query);
  Factors factors;
  to_factors(factors, p);
  begin_products();
  multiply_columns<kDim>(value_sums, factors, gradients);
  end_products();
  finish_products<1>();
  settled(d);
  // Probabilities are converted back from their factors: there are too few registers to keep both.
#pragma unroll
  for (int j = 0; j < kColumns; ++j) {
    const auto shift = *reinterpret_cast<const float2*>(&shifts[column_of(j, 0)]);
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t pair = factors[j / 2][j % 2 * 2 + i / 2];
      d[j][i] = __uint_as_float(pair << 16) * (d[j][i] - shift.x);
      d[j][i + 1] = __uint_as_float(pair & 0xffff0000) * (d[j][i + 1] - shift.y);
    }
  }
  Factors key_factors;
  to_factors(key_factors, d);
  begin_products();
  multiply_columns<kDim>(key_sums, key_factors, queries);
  end_products();
}

}  // namespace capstan::cuda
