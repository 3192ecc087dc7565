// The cross-entropy of logits whose columns are spread over several ranks.
#include "ops/cuda/softmax_rows.cuh"
#include "ops/head_stats.h"

namespace capstan::cuda {
namespace {

constexpr int kThreads = 512;

// The logits of a chunk, one block for each token.
template <class X>
struct Chunk {
  X* logits;
  const int32_t *labels, *order;
  int64_t first, T, V;
  int64_t first_column;  // of this rank, among those of all
  bool in_packs;

  __device__ X* values() const { return logits + blockIdx.x * V; }
  __device__ TokenRow row() const { return token_row(labels, order, first, T); }
  // Reads every pack from memory.
  __device__ RowOfPacks<kThreads, X> packs() const {
    return {reinterpret_cast<uint4*>(values()), nullptr, static_cast<int>(V / kPack<X>), 0};
  }
  // The label's column, or -1 if another rank has it.
  __device__ int64_t column_of(int32_t label) const {
    const int64_t column = label - first_column;
    return column >= 0 && column < V ? column : -1;
  }
};

template <class X>
__global__ void __launch_bounds__(kThreads) stats_kernel(Chunk<X> chunk, HeadStats* stats) {
  const int32_t label = chunk.row().label;
  if (label == kIgnore) {
    if (threadIdx.x == 0) stats[blockIdx.x] = {0, 0, 0};
    return;
  }
  const X* const values = chunk.values();
  MaxSum mine{-INFINITY, 0};
  if (chunk.in_packs) {
    chunk.packs().template for_each<true>([&](const uint4& pack, int) {
      float x[kPack<X>];
      unpack<X>(x, pack);
      add_pack<X>(mine, x);
    });
  } else {
    for (int64_t v = threadIdx.x; v < chunk.V; v += kThreads)
      mine = joined(mine, {to_float(values[v]), 1});
  }
  const MaxSum all = block_max_sum<kThreads>(mine);
  if (threadIdx.x != 0) return;
  const int64_t target = chunk.column_of(label);
  stats[blockIdx.x] = {double{all.most}, double{all.sum},
                       target < 0 ? 0.0 : double{to_float(values[target])}};
}

// Joins one token's numbers, n apart, in the order of the ranks, so that all have the same bits.
__device__ HeadStats joined_ranks(const HeadStats* all, int64_t n, int ranks) {
  HeadStats whole{all[0].top, 0, 0};
  for (int i = 1; i < ranks; ++i) whole.top = fmax(whole.top, all[i * n].top);
  for (int i = 0; i < ranks; ++i) {
    const HeadStats part = all[i * n];
    // The last term is 0, or NaN if the top is not finite.
    whole.sum += part.sum * exp(part.top - whole.top) + (part.top - part.top);
    whole.target += part.target;
  }
  return whole;
}

template <class X>
__global__ void __launch_bounds__(kThreads)
    split_cross_entropy_kernel(Chunk<X> chunk, double* losses, const HeadStats* all, int ranks,
                               ScalarArgument factor_of_loss, bool backward) {
  const float scale = factor_of_loss.read();
  X* const values = chunk.values();
  const auto [index, label] = chunk.row();
  if (label == kIgnore) {
    if (threadIdx.x == 0) losses[index] = 0;
    if (!backward) return;
    for (int64_t v = threadIdx.x; v < chunk.V; v += kThreads) values[v] = from_float<X>(0);
    return;
  }
  __shared__ HeadStats whole;
  if (threadIdx.x == 0) {
    whole = joined_ranks(all + blockIdx.x, gridDim.x, ranks);
    losses[index] = log(whole.sum) + whole.top - whole.target;
  }
  if (!backward) return;
  __syncthreads();
  const auto top = static_cast<float>(whole.top);
  const auto factor = static_cast<float>(double{scale} / whole.sum);
  const int64_t target = chunk.column_of(label);
  if (!chunk.in_packs) {
    for (int64_t v = threadIdx.x; v < chunk.V; v += kThreads) {
      const float gradient = expf(to_float(values[v]) - top) * factor;
      values[v] = from_float<X>(gradient - (v == target ? scale : 0.0f));
    }
    return;
  }
  constexpr int N = kPack<X>;
  const auto packs = chunk.packs();
  packs.template for_each<false>([&](const uint4& pack, int i) {
    float x[N];
    unpack<X>(x, pack);
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = exp_of<X>(x[k] - top) * factor;
    if (target >= 0 && target / N == i)
#pragma unroll
      for (int k = 0; k < N; ++k) x[k] -= target % N == k ? scale : 0.0f;
    __stcs(packs.row + i, packed<X>(x));
  });
}

// Calls body(chunk) with the type of the logits.
template <class Body>
void with_chunk(const Tensor& logits, const Tensor& labels, const Tensor& order, int64_t first,
                const HeadRows& split, const Body& body) {
  with_type(logits.dtype(), [&]<class X>() {
    body(Chunk<X>{data<X>(logits), data<int32_t>(labels), order ? data<int32_t>(order) : nullptr,
                  first, labels.numel(), logits.dim(1), split.first, packs(kPack<X>, logits)});
  });
}

}  // namespace

void head_stats(Queue& q, const Tensor& logits, const Tensor& mine, const Tensor& labels,
                const Tensor& order, int64_t first, const HeadRows& split) {
  const auto n = static_cast<unsigned>(logits.dim(0));
  if (n == 0) return;
  with_chunk(logits, labels, order, first, split, [&]<class X>(const Chunk<X>& chunk) {
    stats_kernel<<<n, kThreads, 0, stream_of(q)>>>(chunk, data<HeadStats>(mine));
  });
  launched("head_stats");
}

void split_cross_entropy(Queue& q, const Tensor& logits, const Tensor& losses, const Tensor& all,
                         const Tensor& labels, const Tensor& order, int64_t first,
                         const HeadRows& split, const Scalar& factor_of_loss, bool backward) {
  const auto n = static_cast<unsigned>(logits.dim(0));
  if (n == 0) return;
  const ScalarArgument scale(factor_of_loss);
  with_chunk(logits, labels, order, first, split, [&]<class X>(const Chunk<X>& chunk) {
    split_cross_entropy_kernel<<<n, kThreads, 0, stream_of(q)>>>(
        chunk, data<double>(losses), data<HeadStats>(all), split.ranks, scale, backward);
  });
  launched("split_cross_entropy");
}

}  // namespace capstan::cuda
