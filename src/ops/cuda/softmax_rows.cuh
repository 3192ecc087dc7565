#pragma once

#include "ops/cuda/head_loss.cuh"

// Maximum and sum of exponentials of a row of logits, by a block of threads.
namespace capstan::cuda {

struct MaxSum {
  float most, sum;  // Σ exp(x - most)
};
__device__ inline MaxSum joined(MaxSum a, MaxSum b) {
  const float most = fmaxf(a.most, b.most);
  // Infinite logits and NaN propagate: exp(inf - inf) is NaN. Two empty halves stay empty; fmaxf
  // returns -inf if the other is NaN.
  if (most == -INFINITY) return {most, isnan(a.most) || isnan(b.most) ? NAN : a.sum + b.sum};
  return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}

template <int kThreads>
__device__ inline MaxSum block_max_sum(MaxSum mine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    mine = joined(mine, {__shfl_xor_sync(0xffffffff, mine.most, step),
                         __shfl_xor_sync(0xffffffff, mine.sum, step)});
  __shared__ MaxSum room[kThreads / 32];
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = mine;
  __syncthreads();
  MaxSum all = room[0];
  for (int i = 1; i < kThreads / 32; ++i) all = joined(all, room[i]);
  return all;
}

struct TokenRow {
  int64_t index;
  int32_t label;  // kIgnore if the row belongs to no target token
};
__device__ inline TokenRow token_row(const int32_t* labels, const int32_t* order, int64_t first,
                                     int64_t T) {
  const int token = token_at(order, first + blockIdx.x, T);
  return {first + blockIdx.x, token < 0 ? kIgnore : labels[token]};
}

// The packs of a row, kBatch at a time: all loads of a batch are issued before the first use. The
// first `room` packs are kept in shared memory and read from there again.
template <int kThreads, class X>
struct RowOfPacks {
  static constexpr int kBatch = 4;
  uint4* row;
  uint4* kept;
  int packs, room;

  // body(pack, its index), in a fixed order.
  template <bool kFirst, class Body>
  __device__ void for_each(const Body& body) const {
    for (int begin = static_cast<int>(threadIdx.x); begin < packs; begin += kBatch * kThreads) {
      uint4 batch[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = begin + b * kThreads;
        if (i < packs) batch[b] = !kFirst && i < room ? kept[i] : __ldcg(row + i);
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = begin + b * kThreads;
        if (i >= packs) break;
        if (kFirst && i < room) kept[i] = batch[b];
        body(batch[b], i);
      }
    }
  }
};

// Narrow logits have fewer digits than the fast version loses.
template <class X>
__device__ inline float exp_of(float x) {
  if constexpr (sizeof(X) == 4)
    return expf(x);
  else
    return power_of_two(x * kLog2e);
}

template <class X>
__device__ inline void add_pack(MaxSum& to, const float (&x)[kPack<X>]) {
  float most = to.most;
#pragma unroll
  for (const float value : x) most = fmaxf(most, value);
  // If all are -inf, subtract nothing.
  const float shift = most == -INFINITY ? 0.0f : most;
  if (most > to.most) to.sum *= exp_of<X>(to.most - shift);
  to.most = most;
#pragma unroll
  for (const float value : x) to.sum += exp_of<X>(value - shift);
}

}  // namespace capstan::cuda
