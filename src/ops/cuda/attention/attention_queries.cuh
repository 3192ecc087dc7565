#pragma once

#include "ops/cuda/attention/attention_rows.cuh"
#include "ops/cuda/attention/attention_softmax.cuh"
#include "ops/cuda/product/wgmma.cuh"

// Accumulates a tile of keys and values into the gradients of a tile of queries.
namespace capstan::cuda {

// Queries and their gradients are factors of multiply_rows: tiles, or registers. log_sums and
// shifts are lse · log2(e) and delta of a thread's two rows; the keys begin at `key`. `meanwhile`
// runs during the first products. All products are complete at the end.
template <int kDim, class Left, class Meanwhile>
__device__ __forceinline__ void add_query_gradients(
    float (&sums)[kDim / 8][4], const Left& queries, const Left& gradients, const Tile<kDim>& keys,
    const Tile<kDim>& values, const float (&log_sums)[2], const float (&shifts)[2], int key,
    const QueryRows& rows, float scale, const Meanwhile& meanwhile) {
  float p[kColumns][4], d[kColumns][4];
  begin_products();
  multiply_rows(p, queries, keys);
  end_products();
  multiply_rows(d, gradients, values);
  end_products();
  meanwhile();
  finish_products<1>();
  settled(p);
#pragma unroll
  for (int j = 0; j < kColumns; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) p[j][i] = power_of_two(fmaf(p[j][i], scale, -log_sums[i / 2]));
  rows.hide(p, key, 0.0f);
  finish_products<0>();
  settled(d);
#pragma unroll
  for (int j = 0; j < kColumns; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) d[j][i] = p[j][i] * (d[j][i] - shifts[i / 2]);
  Factors factors;
  to_factors(factors, d);
  begin_products();
  multiply_columns<kDim>(sums, factors, keys);
  end_products();
  finish_products<0>();  // ptxas would serialize products with loop-carried sums
  settled(sums);
}

}  // namespace capstan::cuda
